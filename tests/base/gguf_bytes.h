// GGUF files put together by tests, after ggml's docs/gguf.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace loam::testing {

template <class T>
std::string bytes_of(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}
inline std::string gguf_text(std::string_view text) { return bytes_of<uint64_t>(text.size()) + std::string(text); }

class GgufBytes {
 public:
  enum Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

  GgufBytes& add(std::string_view key, uint32_t type, const std::string& value) {
    metadata_ += gguf_text(key) + bytes_of(type) + value;
    ++keys_;
    return *this;
  }
  GgufBytes& add(std::string_view key, std::string_view text) { return add(key, kString, gguf_text(text)); }
  GgufBytes& add_texts(std::string_view key, const std::vector<std::string>& texts) {
    std::string value = bytes_of<uint32_t>(kString) + bytes_of<uint64_t>(texts.size());
    for (const std::string& text : texts) value += gguf_text(text);
    return add(key, kArray, value);
  }
  template <class T>
  GgufBytes& add_numbers(std::string_view key, Type type, const std::vector<T>& numbers) {
    std::string value = bytes_of<uint32_t>(type) + bytes_of<uint64_t>(numbers.size());
    for (const T number : numbers) value += bytes_of(number);
    return add(key, kArray, value);
  }
  GgufBytes& add_tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    tensors_ += gguf_text(name) + bytes_of(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) tensors_ += bytes_of(dim);
    tensors_ += bytes_of(type) + bytes_of(offset);
    ++tensor_count_;
    return *this;
  }
  // With `data_bytes` zeros of tensor data, behind zeros up to a multiple of `alignment`.
  std::string file(size_t data_bytes = 0, uint32_t version = 3, size_t alignment = 32) const {
    std::string out = "GGUF" + bytes_of(version) + bytes_of(tensor_count_) + bytes_of(keys_) + metadata_ + tensors_;
    if (data_bytes > 0) out.resize((out.size() + alignment - 1) / alignment * alignment + data_bytes, '\0');
    return out;
  }

 private:
  std::string metadata_, tensors_;
  uint64_t keys_ = 0, tensor_count_ = 0;
};

}  // namespace loam::testing
