// What the two forms that `loam convert` writes share.
#pragma once

#include <string>

#include "apps/command.h"
#include "loam/base/json.h"
#include "loam/tensor/tensor.h"

namespace loam {

struct ConvertOptions {
  std::string from, to, tokenizer, dtype = "f32", family;
  int64_t shard_bytes = 0;
  bool force = false;
};

// A warning for each of the first tensors that hold what is no finite number, and one for the rest.
class NonFiniteWarnings {
 public:
  void look_at(const std::string& name, const Tensor& tensor, int threads);
  void finish() const;

 private:
  static constexpr int64_t kShown = 8;
  int64_t tensors_ = 0;
};

// Writes a MODEL directory as a GGUF file; says what it wrote.
Json convert_to_gguf(const ConvertOptions& options, int threads);

}  // namespace loam
