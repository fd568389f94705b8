// A MODEL directory as one GGUF file, for llama.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loam/autograd/context.h"
#include "loam/base/gguf_writer.h"
#include "loam/model/config_file.h"

namespace loam {

struct GgufModelOptions {
  DType dtype = DType::f32;               // of matrices: f32, bf16 or f16; vectors and learned positions are always f32
  std::string name;                       // general.name; "": none
  std::vector<GgufField> tokenizer;       // keys "tokenizer. ..."; empty: the file states that it has none
  std::function<void(int64_t)> on_bytes;  // hears of each tensor as it is converted (0) and written (its bytes)
  std::function<void(const std::string& name, const Tensor&)> on_tensor;  // sees each as it is going to be written
};

class GgufModel {
 public:
  // Reads config.json. Error{kInvalidArgument} in one line if llama.cpp does not know the family, or its graph would
  // compute something else; errors as of read_model_config().
  explicit GgufModel(const Path& directory);

  const ModelFileConfig& config() const { return read_; }
  int64_t bytes(DType dtype) const;  // of the tensors

  // Atomically, tensor by tensor: the file's tensors are mapped, and one is converted at a time. Errors as of
  // load_model(); Error{kInvalidArgument} that names the tensor for values that f16 cannot hold.
  void write(const ExecContext& ctx, const Path& file, const GgufModelOptions& options) const;

 private:
  Path directory_;
  ModelFileConfig read_;
};

}  // namespace loam
