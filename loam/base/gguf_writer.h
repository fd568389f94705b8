// Writing GGUF files, version 3, little-endian (ggml's docs/gguf.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/gguf.h"

namespace loam {

// A key with its value, in the type that is written: readers ask for the one that the specification states.
struct GgufField {
  using Value = std::variant<bool, uint32_t, float, std::string, std::vector<bool>, std::vector<int32_t>,
                             std::vector<float>, std::vector<std::string>>;
  std::string key;
  Value value;
};

// One file, written from front to back in the memory of its header; nothing appears at its path before commit(). Each
// tensor begins at a multiple of 32 bytes, as does what follows it.
class GgufWriter {
 public:
  // Writes the header. Of each tensor name, dims and type are taken (F32, F16 or BF16); where it lies follows.
  GgufWriter(const Path& path, const std::vector<GgufField>& fields, std::vector<GgufTensor> tensors);

  // All bytes of the next tensor, in the order given.
  void write(const void* data, int64_t bytes);
  // REQUIRES: every tensor has been written.
  void commit();

 private:
  AtomicFile file_;
  std::vector<GgufTensor> tensors_;
  size_t written_ = 0;
};

}  // namespace loam
