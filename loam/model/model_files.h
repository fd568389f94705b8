// MODEL directories in Hugging Face form: config.json, model.safetensors (or shards with an index),
// generation_config.json. The tokenizer's files lie beside them and are the business of loam/text.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "loam/autograd/context.h"
#include "loam/base/file.h"
#include "loam/config/model_config.h"
#include "loam/model/transformer.h"
#include "loam/nn/param_store.h"

namespace loam {

// Weights and structure together, ready to run.
struct Model {
  std::string family;
  std::unique_ptr<ParamStore> weights;
  std::unique_ptr<Transformer> transformer;
  int32_t bos_id = -1, eos_id = -1;  // of the configuration; -1: not stated
  const ModelConfig& config() const { return transformer->config(); }
};

// A new, uninitialised model.
Model make_model(const ExecContext& ctx, const ModelConfig& config, DType compute_dtype, bool with_gradients);

// Reads a directory. Missing and left-over tensors are one Error{kBadFormat} that lists them; shapes are checked. A
// missing head is an error unless the configuration ties it.
Model load_model(const ExecContext& ctx, const Path& directory, DType compute_dtype, bool with_gradients = false);

struct SaveModelOptions {
  DType dtype = DType::f32;  // of matrices and embeddings in the file
  std::string family;        // "": the one it was read as, or the first that fits
  std::optional<int32_t> bos_id, eos_id;
};
// Writes config.json, generation_config.json and model.safetensors into an existing directory. A tied head is written
// once, with tie_word_embeddings true.
void save_model(const Model& model, const Path& directory, const SaveModelOptions& options);
// The same with weights taken from elsewhere: `weight(index)` gives parameter `index` in its shape (f32 masters of the
// optimizer).
void save_model(const Model& model, const std::function<Tensor(int32_t index)>& weight, const Path& directory,
                const SaveModelOptions& options);

// llama2.c's .bin form.
Model load_llama2c(const ExecContext& ctx, const Path& file, DType compute_dtype);

}  // namespace loam
