#include "loam/base/gguf_writer.h"

#include <bit>

namespace loam {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;  // the default; the key general.alignment would state another

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
void put_text(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out += text;
}

// The numbers of the types.
constexpr uint32_t type_of(const bool*) { return 7; }
constexpr uint32_t type_of(const uint32_t*) { return 4; }
constexpr uint32_t type_of(const int32_t*) { return 5; }
constexpr uint32_t type_of(const float*) { return 6; }
constexpr uint32_t type_of(const std::string*) { return 8; }
constexpr uint32_t kArray = 9;

template <class T>
void put_value(std::string& out, const T& value) {
  put(out, value);
}
void put_value(std::string& out, const std::string& value) { put_text(out, value); }

template <class T>
void put_typed(std::string& out, const T& value) {
  put(out, type_of(&value));
  put_value(out, value);
}
template <class T>
void put_typed(std::string& out, const std::vector<T>& values) {
  put(out, kArray);
  put(out, type_of(static_cast<const T*>(nullptr)));
  put(out, uint64_t{values.size()});
  for (const T& value : values) put_value(out, value);
}

int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t bytes_of(const GgufTensor& tensor) {
  LOAM_CHECK(tensor.type == kGgufF32 || tensor.type == kGgufF16 || tensor.type == kGgufBf16,
             "gguf: tensor {} of the type {}", tensor.name, tensor.type);
  int64_t bytes = tensor.type == kGgufF32 ? 4 : 2;
  for (const int64_t dim : tensor.dims) bytes *= dim;
  return bytes;
}

}  // namespace

GgufWriter::GgufWriter(const Path& path, const std::vector<GgufField>& fields, std::vector<GgufTensor> tensors)
    : file_(path), tensors_(std::move(tensors)) {
  std::string header = "GGUF";
  put(header, kVersion);
  put(header, uint64_t{tensors_.size()});
  put(header, uint64_t{fields.size()});
  for (const GgufField& field : fields) {
    put_text(header, field.key);
    std::visit([&](const auto& value) { put_typed(header, value); }, field.value);
  }
  int64_t offset = 0;  // from the beginning of the data
  for (GgufTensor& tensor : tensors_) {
    tensor.bytes = bytes_of(tensor);
    put_text(header, tensor.name);
    put(header, static_cast<uint32_t>(tensor.dims.size()));
    for (const int64_t dim : tensor.dims) put(header, static_cast<uint64_t>(dim));
    put(header, tensor.type);
    put(header, static_cast<uint64_t>(offset));
    offset += padded(tensor.bytes);
  }
  header.resize(static_cast<size_t>(padded(static_cast<int64_t>(header.size()))), '\0');
  file_.write(header);
}

void GgufWriter::write(const void* data, int64_t bytes) {
  LOAM_CHECK(written_ < tensors_.size() && bytes == tensors_[written_].bytes, "gguf: {} bytes for tensor {} of {}",
             bytes, written_, tensors_.size());
  ++written_;
  file_.write(data, bytes);
  file_.write(std::string(static_cast<size_t>(padded(bytes) - bytes), '\0'));
}

void GgufWriter::commit() {
  LOAM_CHECK(written_ == tensors_.size(), "gguf: {} of {} tensors are written", written_, tensors_.size());
  file_.commit();
}

}  // namespace loam
