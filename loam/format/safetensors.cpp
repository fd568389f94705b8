#include "loam/format/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <string_view>

#include "loam/base/log.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

static_assert(std::endian::native == std::endian::little, "the data is used as it lies in the file");

constexpr int64_t kMaxHeader = 100'000'000;  // as the reference implementation
constexpr int64_t kPrefix = 8;               // bytes of the header length
constexpr std::string_view kMetadata = "__metadata__";

struct DTypeEntry {
  std::string_view name;
  int bits;
  bool known;  // to loam
  DType dtype;
};

constexpr DTypeEntry kDTypes[] = {
    {"F32", 32, true, DType::f32}, {"BF16", 16, true, DType::bf16},
    {"F16", 16, true, DType::f16}, {"I32", 32, true, DType::i32},
    {"I64", 64, true, DType::i64}, {"U8", 8, true, DType::u8},
    {"U16", 16, true, DType::u16}, {"U32", 32, true, DType::u32},
    {"F64", 64, false, {}},        {"I16", 16, false, {}},
    {"I8", 8, false, {}},          {"U64", 64, false, {}},
    {"BOOL", 8, false, {}},        {"F8_E4M3", 8, false, {}},
    {"F8_E5M2", 8, false, {}},     {"F8_E8M0", 8, false, {}},
    {"F8_E4M3FNUZ", 8, false, {}}, {"F8_E5M2FNUZ", 8, false, {}},
    {"F6_E2M3", 6, false, {}},     {"F6_E3M2", 6, false, {}},
    {"F4", 4, false, {}},          {"C64", 64, false, {}},
};

const DTypeEntry* find_dtype(std::string_view name) {
  const auto* found = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](auto& d) { return d.name == name; });
  return found == std::end(kDTypes) ? nullptr : found;
}

std::string_view dtype_spelling(DType dtype) {
  for (const auto& d : kDTypes) {
    if (d.known && d.dtype == dtype) return d.name;
  }
  fail(ErrorCode::kInternal, "safetensors: no name for dtype {}", dtype_name(dtype));
}

// A name from a hostile file, fit for a message.
std::string shown(std::string_view name) { return printable(name, false, 100); }

}  // namespace

void SafetensorsFile::fail_tensor(const std::string& name, const std::string& what) const {
  fail(ErrorCode::kBadFormat, "{}: tensor '{}': {}", path_.string(), shown(name), what);
}

SafetensorsFile::SafetensorsFile(const Path& path) : path_(path), map_(std::make_shared<MappedFile>(path)) {
  const auto check = [&](bool ok, const std::string& what) {
    if (!ok) fail(ErrorCode::kBadFormat, "{}: not a safetensors file: {}", path_.string(), what);
  };
  const std::string_view text = map_->text();
  check(map_->size() >= kPrefix, fmt::format("{} bytes, too short for a header length", map_->size()));
  uint64_t header_size = 0;
  std::memcpy(&header_size, text.data(), kPrefix);
  check(header_size <= uint64_t{kMaxHeader}, fmt::format("header length {} is above {}", header_size, kMaxHeader));
  check(static_cast<int64_t>(header_size) <= map_->size() - kPrefix,
        fmt::format("header length {} is beyond the end of the file ({} bytes)", header_size, map_->size()));
  data_begin_ = kPrefix + static_cast<int64_t>(header_size);
  data_size_ = map_->size() - data_begin_;

  const std::string_view header = text.substr(kPrefix, header_size);
  check(header.starts_with('{'), "the header does not begin with '{'");
  const Json json = Json::parse(header, path_.string() + ": header");
  bool metadata_seen = false;
  for (const auto& [name, value] : json.as_object()) {
    if (name != kMetadata) {
      const bool added = entries_.emplace(name, parse_entry(name, value)).second;
      if (!added) fail_tensor(name, "named twice");
      names_.push_back(name);
      continue;
    }
    check(!metadata_seen && value.is_object(), "__metadata__ must be one object");
    metadata_seen = true;
    for (const auto& [key, text_value] : value.as_object()) {
      check(text_value.is_string(), fmt::format("__metadata__ '{}' is not a string", shown(key)));
      metadata_[key] = text_value.as_string();
    }
  }
  check_ranges();
}

SafetensorsEntry SafetensorsFile::parse_entry(const std::string& name, const Json& value) const {
  if (!value.is_object()) fail_tensor(name, "its entry is not an object");
  const Json *dtype = value.find("dtype"), *shape = value.find("shape"), *offsets = value.find("data_offsets");
  if (!dtype || !dtype->is_string() || !shape || !shape->is_array() || !offsets || !offsets->is_array()) {
    fail_tensor(name, "needs dtype, shape and data_offsets");
  }
  const DTypeEntry* type = find_dtype(dtype->as_string());
  if (type == nullptr) fail_tensor(name, fmt::format("unknown dtype '{}'", shown(dtype->as_string())));

  if (shape->as_array().size() > kMaxRank) {
    fail_tensor(name, fmt::format("{} axes, at most {} are supported", shape->as_array().size(), kMaxRank));
  }
  SafetensorsEntry entry{dtype->as_string(), {}, 0, 0};
  int64_t bits = type->bits;
  for (const Json& size : shape->as_array()) {
    if (!size.is_int() || size.as_int() < 0) fail_tensor(name, "a size is not a whole number of at least 0");
    // The product is checked even behind a 0, as the reference does.
    if (__builtin_mul_overflow(bits, size.as_int(), &bits)) fail_tensor(name, "the shape is too large");
    entry.shape.push_back(size.as_int());
  }
  if (bits % 8 != 0) fail_tensor(name, "the shape does not fill whole bytes");

  const auto& range = offsets->as_array();
  if (range.size() != 2 || !range[0].is_int() || !range[1].is_int()) {
    fail_tensor(name, "data_offsets is not a pair of whole numbers");
  }
  entry.begin = range[0].as_int();
  entry.end = range[1].as_int();
  if (entry.begin < 0 || entry.end < entry.begin || entry.end > data_size_) {
    fail_tensor(name,
                fmt::format("bytes [{}, {}) are not inside the data of {} bytes", entry.begin, entry.end, data_size_));
  }
  if (entry.end - entry.begin != bits / 8) {
    fail_tensor(name, fmt::format("{} bytes of data, but {} {} takes {}", entry.end - entry.begin, entry.dtype,
                                  entry.shape.str(), bits / 8));
  }
  return entry;
}

// Every byte of the data belongs to exactly one tensor. Puts the names in order of their data.
void SafetensorsFile::check_ranges() {
  std::stable_sort(names_.begin(), names_.end(), [&](const std::string& a, const std::string& b) {
    const SafetensorsEntry &x = entries_.at(a), &y = entries_.at(b);
    return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
  });
  int64_t position = 0;
  for (const std::string& name : names_) {
    const SafetensorsEntry& entry = entries_.at(name);
    if (entry.begin < position) fail_tensor(name, fmt::format("overlaps the tensor before it at byte {}", entry.begin));
    if (entry.begin > position)
      fail_tensor(name, fmt::format("bytes [{}, {}) belong to no tensor", position, entry.begin));
    position = entry.end;
  }
  if (position != data_size_) {
    fail(ErrorCode::kBadFormat, "{}: bytes [{}, {}) of the data belong to no tensor", path_.string(), position,
         data_size_);
  }
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    fail(ErrorCode::kNotFound, "{}: there is no tensor '{}'", path_.string(), shown(name));
  }
  return found->second;
}

Tensor SafetensorsFile::tensor(const std::string& name) const {
  const SafetensorsEntry& entry = this->entry(name);
  const DTypeEntry* type = find_dtype(entry.dtype);
  if (!type->known) fail_tensor(name, fmt::format("dtype {} is not supported", entry.dtype));

  auto* data = const_cast<std::byte*>(map_->bytes().data()) + data_begin_ + entry.begin;
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(dtype_size(type->dtype)) == 0) {
    return Tensor::wrap(map_, data, entry.shape, type->dtype, Device{});
  }
  auto copy = std::make_shared<std::vector<std::byte>>(data, data + (entry.end - entry.begin));
  return Tensor::wrap(copy, copy->data(), entry.shape, type->dtype, Device{});
}

void write_safetensors(const Path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(int64_t bytes)>& on_tensor) {
  std::vector<const std::pair<std::string, Tensor>*> order;
  std::set<std::string_view> names;
  for (const auto& item : tensors) {
    const auto& [name, tensor] = item;
    LOAM_CHECK(tensor && tensor.is_contiguous(), "{}: tensor '{}' must be contiguous", path.string(), name);
    LOAM_CHECK(name != kMetadata && names.insert(name).second, "{}: tensor name '{}' is taken", path.string(), name);
    order.push_back(&item);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtype_size(a->second.dtype()) > dtype_size(b->second.dtype());
  });

  Json::Object header;
  if (!metadata.empty()) {
    Json::Object pairs;
    for (const auto& [key, value] : metadata) pairs.emplace_back(key, value);
    header.emplace_back(std::string(kMetadata), std::move(pairs));
  }
  int64_t position = 0;
  for (const auto* item : order) {
    const Tensor& tensor = item->second;
    Json::Array shape(tensor.shape().begin(), tensor.shape().end());
    Json::Array range = {position, position + tensor.bytes()};
    header.emplace_back(item->first, Json::Object{{"dtype", dtype_spelling(tensor.dtype())},
                                                  {"shape", std::move(shape)},
                                                  {"data_offsets", std::move(range)}});
    position += tensor.bytes();
  }
  std::string text = Json(std::move(header)).dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  LOAM_CHECK(static_cast<int64_t>(text.size()) <= kMaxHeader, "{}: a header of {} bytes is too long", path.string(),
             text.size());

  AtomicFile file(path);
  const uint64_t header_size = text.size();
  file.write(&header_size, kPrefix);
  file.write(text);
  for (const auto* item : order) {
    file.write(item->second.to_host().view().data, item->second.bytes());
    if (on_tensor) on_tensor(item->second.bytes());
  }
  file.commit();
}

SafetensorsModel::SafetensorsModel(const Path& path) : path_(path) {
  const Path single = std::filesystem::is_directory(path) ? path / "model.safetensors" : path;
  if (!std::filesystem::is_directory(path) || std::filesystem::exists(single)) {
    files_.push_back(std::make_unique<SafetensorsFile>(single));
    for (const std::string& name : files_[0]->names()) where_[name] = 0;
  } else {
    read_index(path);
  }
}

std::string SafetensorsModel::metadata(const std::string& key) const {
  for (const auto& file : files_) {
    if (const auto at = file->metadata().find(key); at != file->metadata().end()) return at->second;
  }
  return "";
}

void SafetensorsModel::read_index(const Path& directory) {
  const Path index = directory / "model.safetensors.index.json";
  if (!std::filesystem::exists(index)) {
    fail(ErrorCode::kNotFound, "{}: holds neither model.safetensors nor model.safetensors.index.json",
         directory.string());
  }
  const Json json = Json::parse(read_file(index, kMaxHeader), index.string());
  const Json* weight_map = json.is_object() ? json.find("weight_map") : nullptr;
  if (weight_map == nullptr || !weight_map->is_object()) {
    fail(ErrorCode::kBadFormat, "{}: there is no object 'weight_map'", index.string());
  }
  std::map<std::string, size_t> file_index;
  for (const auto& [name, value] : weight_map->as_object()) {
    const std::string file = value.is_string() ? value.as_string() : "";
    if (file.empty() || file == ".." || file.find('/') != std::string::npos || file.find('\0') != std::string::npos) {
      fail(ErrorCode::kBadFormat, "{}: tensor '{}': '{}' is not the name of a file beside it", index.string(),
           shown(name), shown(file));
    }
    const auto [at, is_new] = file_index.emplace(file, files_.size());
    if (is_new) files_.push_back(std::make_unique<SafetensorsFile>(directory / file));
    if (!files_[at->second]->contains(name)) {
      fail(ErrorCode::kBadFormat, "{}: {} does not hold tensor '{}'", index.string(), file, shown(name));
    }
    if (!where_.emplace(name, at->second).second) {
      fail(ErrorCode::kBadFormat, "{}: tensor '{}' is named twice", index.string(), shown(name));
    }
  }
  size_t held = 0;
  for (const auto& file : files_) held += file->names().size();
  if (held > where_.size()) {
    log_warn("{}: {} tensors of its files are not in the index and are ignored", index.string(), held - where_.size());
  }
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const std::string& name : files_[i]->names()) {
      const auto found = where_.find(name);
      if (found != where_.end() && found->second == i) names.push_back(name);
    }
  }
  return names;
}

const SafetensorsEntry& SafetensorsModel::entry(const std::string& name) const {
  const auto found = where_.find(name);
  if (found == where_.end()) {
    fail(ErrorCode::kNotFound, "{}: there is no tensor '{}'", path_.string(), shown(name));
  }
  return files_[found->second]->entry(name);
}

Tensor SafetensorsModel::tensor(const std::string& name) const {
  entry(name);
  return files_[where_.at(name)]->tensor(name);
}

}  // namespace loam
