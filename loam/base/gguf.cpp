#include "loam/base/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "loam/base/mmap.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kMaxKeyBytes = 65535, kMaxDims = 4, kMaxElements = uint64_t{1} << 26;
constexpr int64_t kDefaultAlignment = 32;

enum Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kTypes };
constexpr std::array<uint64_t, kTypes> kLeastBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

struct BlockType {
  int64_t elements = 0, bytes = 0;  // of a block; none for a number that no type has
  std::string_view name = {};
};
// By ggml's number.
constexpr BlockType kBlockTypes[] = {
    {1, 4, "F32"},
    {1, 2, "F16"},
    {32, 18, "Q4_0"},
    {32, 20, "Q4_1"},
    {},
    {},
    {32, 22, "Q5_0"},
    {32, 24, "Q5_1"},
    {32, 34, "Q8_0"},
    {32, 36, "Q8_1"},
    {256, 84, "Q2_K"},
    {256, 110, "Q3_K"},
    {256, 144, "Q4_K"},
    {256, 176, "Q5_K"},
    {256, 210, "Q6_K"},
    {256, 292, "Q8_K"},
    {256, 66, "IQ2_XXS"},
    {256, 74, "IQ2_XS"},
    {256, 98, "IQ3_XXS"},
    {256, 50, "IQ1_S"},
    {32, 18, "IQ4_NL"},
    {256, 110, "IQ3_S"},
    {256, 82, "IQ2_S"},
    {256, 136, "IQ4_XS"},
    {1, 1, "I8"},
    {1, 2, "I16"},
    {1, 4, "I32"},
    {1, 8, "I64"},
    {1, 8, "F64"},
    {256, 56, "IQ1_M"},
    {1, 2, "BF16"},
    {},
    {},
    {},
    {256, 54, "TQ1_0"},
    {256, 66, "TQ2_0"},
    {},
    {},
    {},
    {32, 17, "MXFP4"},
};

// Reads from the front, every length checked first.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadFormat, "{}: offset {}: {}", source_, at_, fmt::format(format, std::forward<Args>(args)...));
  }
  size_t offset() const { return at_; }
  uint64_t rest() const { return bytes_.size() - at_; }

  std::string_view take(uint64_t count) {
    if (count > rest()) refuse("{} bytes are wanted and {} are there", count, rest());
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string text(uint64_t limit = std::numeric_limits<uint64_t>::max()) {
    const auto length = number<uint64_t>();
    if (length > limit) refuse("a name of {} bytes", length);
    return std::string(take(length));
  }
  // Of things that take at least `least_bytes` each.
  uint64_t count(uint64_t least_bytes) {
    const auto value = number<uint64_t>();
    if (value > rest() / least_bytes) refuse("{} elements in {} bytes", value, rest());
    return value;
  }

  int64_t integer(uint32_t type) {
    switch (type) {
      case kU8:
        return number<uint8_t>();
      case kI8:
        return number<int8_t>();
      case kU16:
        return number<uint16_t>();
      case kI16:
        return number<int16_t>();
      case kU32:
        return number<uint32_t>();
      case kI32:
        return number<int32_t>();
      case kI64:
        return number<int64_t>();
      case kU64: {
        const auto value = number<uint64_t>();
        if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) refuse("the integer {}", value);
        return static_cast<int64_t>(value);
      }
      case kBool: {
        const auto value = number<uint8_t>();
        if (value > 1) refuse("a bool of {}", value);
        return value;
      }
      default:
        refuse("a value of the type {}", type);
    }
  }
  double real(uint32_t type) { return type == kF32 ? number<float>() : number<double>(); }

  Gguf::Value value(uint32_t type) {
    switch (type) {
      case kString:
        return text();
      case kF32:
      case kF64:
        return real(type);
      case kBool:
        return integer(type) != 0;
      case kArray:
        return array();
      default:
        return integer(type);
    }
  }

 private:
  Gguf::Value array() {
    const auto type = number<uint32_t>();
    if (type >= kTypes || type == kArray) refuse("an array of the type {}", type);
    const uint64_t length = count(kLeastBytes[type]);
    elements_ += length;
    if (elements_ > kMaxElements) refuse("more than {} elements in arrays", kMaxElements);
    const auto all = [&](auto element) {
      std::vector<decltype(element())> values;
      values.reserve(length);
      for (uint64_t i = 0; i < length; ++i) values.push_back(element());
      return values;
    };
    if (type == kString) return all([&] { return text(); });
    if (type == kF32 || type == kF64) return all([&] { return real(type); });
    return all([&] { return integer(type); });
  }

  std::string_view bytes_;
  const std::string& source_;
  size_t at_ = 0;
  uint64_t elements_ = 0;
};

// Of a tensor with these dimensions.
int64_t tensor_bytes(const Reader& reader, const GgufTensor& tensor) {
  const BlockType block = tensor.type < std::size(kBlockTypes) ? kBlockTypes[tensor.type] : BlockType();
  if (block.elements == 0) reader.refuse("tensor {} is of the unknown type {}", printable(tensor.name), tensor.type);
  if (tensor.dims[0] % block.elements != 0)
    reader.refuse("tensor {} has rows of {} elements in blocks of {}", printable(tensor.name), tensor.dims[0],
                  block.elements);
  int64_t bytes = block.bytes;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    const int64_t factor = i == 0 ? tensor.dims[0] / block.elements : tensor.dims[i];
    if (__builtin_mul_overflow(bytes, factor, &bytes))
      reader.refuse("tensor {} has more than 2^63 bytes", printable(tensor.name));
  }
  return bytes;
}

// Its offset still counts from the beginning of the data.
GgufTensor read_tensor(Reader& reader) {
  GgufTensor tensor;
  tensor.name = reader.text(kMaxKeyBytes);
  const auto count = reader.number<uint32_t>();
  if (count == 0 || count > kMaxDims) reader.refuse("tensor {} has {} dimensions", printable(tensor.name), count);
  for (uint32_t i = 0; i < count; ++i) tensor.dims.push_back(reader.integer(kU64));
  tensor.type = reader.number<uint32_t>();
  tensor.offset = reader.integer(kU64);
  tensor.bytes = tensor_bytes(reader, tensor);
  return tensor;
}

void place_tensors(const Reader& reader, int64_t alignment, std::vector<GgufTensor>& tensors) {
  const auto header = static_cast<int64_t>(reader.offset());
  const int64_t begin = (header + alignment - 1) / alignment * alignment;
  const int64_t size = header + static_cast<int64_t>(reader.rest());
  std::vector<const GgufTensor*> order;
  for (GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0)
      reader.refuse("tensor {} begins at {}, no multiple of {}", printable(tensor.name), tensor.offset, alignment);
    if (begin > size || tensor.offset > size - begin || tensor.bytes > size - begin - tensor.offset)
      reader.refuse("tensor {} of {} bytes at {} lies outside of the file", printable(tensor.name), tensor.bytes,
                    tensor.offset);
    tensor.offset += begin;
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
      reader.refuse("tensors {} and {} overlap", printable(order[i - 1]->name), printable(order[i]->name));
  }
}

}  // namespace

std::string_view gguf_type_name(uint32_t type) {
  return type < std::size(kBlockTypes) ? kBlockTypes[type].name : std::string_view();
}

Gguf Gguf::open(const Path& path) {
  const MappedFile file(path);
  return parse(file.text(), path.string());
}

Gguf Gguf::parse(std::string_view bytes, std::string source) {
  Gguf gguf;
  gguf.source_ = std::move(source);
  Reader reader(bytes, gguf.source_);
  if (!bytes.starts_with("GGUF")) reader.refuse("no GGUF file");
  reader.take(4);
  const auto version = reader.number<uint32_t>();
  if (version != 2 && version != 3)
    reader.refuse("version {} of GGUF{}; known are 2 and 3", version,
                  (version & 0xFFFF) == 0 ? ", or a big-endian file" : "");
  const uint64_t tensors = reader.number<uint64_t>();
  const uint64_t keys = reader.count(8 + 4 + 1);
  for (uint64_t i = 0; i < keys; ++i) {
    std::string key = reader.text(kMaxKeyBytes);
    const auto type = reader.number<uint32_t>();
    Value value = reader.value(type);
    const auto [place, added] = gguf.metadata_.emplace(std::move(key), std::move(value));
    if (!added) reader.refuse("the key {} is there twice", printable(place->first));
  }
  const int64_t alignment = gguf.at_or<int64_t>("general.alignment", kDefaultAlignment);
  if (alignment < 1 || alignment > 1 << 20 || !std::has_single_bit(static_cast<uint64_t>(alignment)))
    reader.refuse("an alignment of {}", alignment);
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    gguf.tensors_.push_back(read_tensor(reader));
    if (!names.insert(gguf.tensors_.back().name).second)
      reader.refuse("the tensor {} is there twice", printable(gguf.tensors_.back().name));
  }
  place_tensors(reader, alignment, gguf.tensors_);
  return gguf;
}

const GgufTensor* Gguf::find_tensor(std::string_view name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const GgufTensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

std::string_view Gguf::kind_name(const Value& value) {
  constexpr std::string_view kNames[] = {
      "a bool", "an integer", "a float", "a string", "a list of integers", "a list of floats", "a list of strings"};
  return kNames[value.index()];
}

}  // namespace loam
