// MODEL directories in Hugging Face form: config.json, model.safetensors (or shards with an index),
// generation_config.json. The tokenizer's files lie beside them and are the business of loam/text.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loam/autograd/context.h"
#include "loam/base/file.h"
#include "loam/config/model_config.h"
#include "loam/model/transformer.h"
#include "loam/nn/param_store.h"

namespace loam {

inline constexpr const char* kTokenizerKey = "loam.tokenizer";  // of the weights' metadata: Model::tokenizer

// Weights and structure together, ready to run.
struct Model {
  std::string family;
  std::unique_ptr<ParamStore> weights;
  std::unique_ptr<Transformer> transformer;
  int32_t bos_id = -1;           // begins a text; -1: not stated
  std::vector<int32_t> eos_ids;  // each ends a reply
  std::string tokenizer;         // fingerprint of the one that made the training data; "": not recorded
  const ModelConfig& config() const { return transformer->config(); }
};

// A new, uninitialised model.
Model make_model(const ExecContext& ctx, const ModelConfig& config, DType compute_dtype, bool with_gradients);

// Reads a directory. What generation_config.json says of bos_token_id and eos_token_id (an id or a list) goes before
// what config.json says, as in transformers; ids beyond the vocabulary are ignored with a warning. Missing and
// left-over tensors are one Error{kBadFormat} that lists them; shapes are checked. A missing head is an error unless
// the configuration ties it.
Model load_model(const ExecContext& ctx, const Path& directory, DType compute_dtype, bool with_gradients = false);
// The weights alone, into what `weight(index)` gives for parameter `index` of `model` in its shape (f32 masters of the
// optimizer), tensor by tensor, so that nothing is held twice. The errors of load_model(), and {kInvalidArgument} if
// the directory's parameters are not those of `model`; each before anything is written.
void load_weights(const ExecContext& ctx, const Path& directory, const Model& model,
                  const std::function<Tensor(int32_t index)>& weight);

// The errors of load_model(), without the weights.
void check_model(const Path& directory);

// The weights' file also records Model::tokenizer, in its metadata under "loam.tokenizer".
struct SaveModelOptions {
  // Of matrices and embeddings in the file, and what config.json states; norm weights and biases are always f32.
  DType dtype = DType::f32;
  std::string family;  // "": the one it was read as, or the first that fits
  std::optional<int32_t> bos_id;
  std::optional<std::vector<int32_t>> eos_ids;
  int64_t shard_bytes = int64_t{5'000'000'000};  // of tensors in one file; a larger tensor has a file of its own
  std::function<void(int64_t)> on_bytes;         // hears of each tensor as it is converted (0) and written (its bytes)
  std::function<void(const std::string& name, const Tensor&)> on_tensor;  // sees each as it is going to be written
};
// Writes config.json, generation_config.json and model.safetensors into an existing directory, or shards of it,
// model-00001-of-00002.safetensors and so on, with model.safetensors.index.json. A tied head is written once, with
// tie_word_embeddings true. Memory: the tensors of one file, where they are converted.
void save_model(const ExecContext& ctx, const Model& model, const Path& directory, const SaveModelOptions& options);
// The same with weights taken from elsewhere: `weight(index)` gives parameter `index` in its shape (f32 masters of the
// optimizer).
void save_model(const ExecContext& ctx, const Model& model, const std::function<Tensor(int32_t index)>& weight,
                const Path& directory, const SaveModelOptions& options);

// llama2.c's .bin form.
Model load_llama2c(const ExecContext& ctx, const Path& file, DType compute_dtype);

}  // namespace loam
