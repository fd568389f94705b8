// The header of GGUF files, versions 2 and 3, little-endian (ggml's docs/gguf.md): metadata by key, and where the
// tensors lie. Tensor data is not read.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/file.h"

namespace loam {

// ggml's numbers of the element types that loam writes.
inline constexpr uint32_t kGgufF32 = 0, kGgufF16 = 1, kGgufBf16 = 30;
// "F32", "Q4_K", ...; "" for a number that no type has.
std::string_view gguf_type_name(uint32_t type);

struct GgufTensor {
  std::string name;
  std::vector<int64_t> dims;  // the innermost first
  uint32_t type = kGgufF32;
  int64_t offset = 0;  // in bytes, from the beginning of the file
  int64_t bytes = 0;   // the tensor lies wholly inside the file

  bool operator==(const GgufTensor&) const = default;
};

// A value. Thread safety: const members may be called from any thread.
class Gguf {
 public:
  // All integers are int64_t, both widths of floats double. Arrays of bool are arrays of 0 and 1.
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                             std::vector<std::string>>;

  // Error{kNotFound, kIo}; Error{kBadFormat} for anything that the format does not allow, with the offset: a length
  // that does not fit the file, a key or tensor that is there twice, an array of arrays, an integer above 2^63 - 1, a
  // tensor of an unknown type, outside of the file, on another one, or not where general.alignment wants it.
  static Gguf open(const Path& path);
  // `source` names the file in errors, also in those of at().
  static Gguf parse(std::string_view bytes, std::string source);

  const std::string& source() const { return source_; }
  const std::map<std::string, Value, std::less<>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;  // null if there is none

  bool contains(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  // T is an alternative of Value. Error{kBadFormat} that names the key, if it is missing or of another kind.
  template <class T>
  const T& at(std::string_view key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) fail(ErrorCode::kBadFormat, "{}: the key {} is missing", source_, key);
    const T* value = std::get_if<T>(&found->second);
    if (!value)
      fail(ErrorCode::kBadFormat, "{}: the key {} is {}, not {}", source_, key, kind_name(found->second),
           kind_name(Value(T())));
    return *value;
  }
  // `otherwise` if the key is missing.
  template <class T>
  T at_or(std::string_view key, T otherwise) const {
    return contains(key) ? at<T>(key) : otherwise;
  }

 private:
  static std::string_view kind_name(const Value& value);

  std::string source_;
  std::map<std::string, Value, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace loam
