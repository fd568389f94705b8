// A llama2.c file as a model: the Llama form with neighbouring rotary pairs.
#include "loam/format/llama2c.h"
#include "loam/model/model_files.h"
#include "loam/model/weight_copy.h"

namespace loam {
namespace {

ModelConfig config_of(const Llama2cModel& file) {
  ModelConfig c;
  c.vocab_size = file.vocab_size;
  c.context_length = file.context_length;
  c.layers = file.layers;
  c.dim = file.dim;
  c.heads = file.heads;
  c.kv_heads = file.kv_heads;
  c.ffn_dim = file.ffn_dim;
  c.norm_eps = 1e-5;
  c.rope_theta = 10000;
  c.rope_pairs = RopePairs::interleaved;
  c.tied_embeddings = file.tied;
  return c;
}

struct Target {
  const char* file_name;  // without the layer's number
  const char* param;      // below "layers.N.", or the whole name
  const char* slice;
};

constexpr Target kLayerTargets[] = {
    {"attention_norm", "attention_norm.weight", ""},
    {"wq", "attention.qkv", "q"},
    {"wk", "attention.qkv", "k"},
    {"wv", "attention.qkv", "v"},
    {"wo", "attention.out", ""},
    {"ffn_norm", "mlp_norm.weight", ""},
    {"w1", "mlp.up", "gate"},
    {"w3", "mlp.up", "up"},
    {"w2", "mlp.down", ""},
};
constexpr Target kOtherTargets[] = {
    {"token_embedding", "embedding", ""}, {"final_norm", "norm.weight", ""}, {"head", "head", ""}};

// The rows of the parameters that the file's tensor fills.
Tensor target_of(ParamStore& store, const std::string& file_name) {
  const size_t dot = file_name.find('.');
  const bool layered = dot != std::string::npos;
  const std::string name = layered ? file_name.substr(dot + 1) : file_name;
  const auto targets = layered ? std::span<const Target>(kLayerTargets) : std::span<const Target>(kOtherTargets);
  for (const Target& target : targets) {
    if (name != target.file_name) continue;
    const ParamRef param =
        store.find(layered ? fmt::format("layers.{}.{}", file_name.substr(0, dot), target.param) : target.param);
    if (!*target.slice) return param.value();
    for (const RowSlice& slice : store.spec(param.index).slices) {
      if (slice.name == target.slice) return param.value().narrow(0, slice.begin, slice.rows);
    }
  }
  fail(ErrorCode::kInternal, "llama2.c: tensor {} has no place", file_name);
}

}  // namespace

Model load_llama2c(const ExecContext& ctx, const Path& file, DType compute_dtype) {
  const Llama2cModel read = read_llama2c(file);
  Model model;
  try {
    model = make_model(ctx, config_of(read), compute_dtype, false);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    fail(ErrorCode::kBadFormat, "{}: {}", file.string(), error.what());
  }
  model.family = "llama";
  model.bos_id = 1;  // of the sentencepiece vocabularies that llama2.c trains with
  model.eos_ids = {2};
  for (const auto& [name, tensor] : read.tensors)
    copy_weights(tensor, target_of(*model.weights, name), {}, ctx.threads);
  model.weights->mark_changed();
  return model;
}

}  // namespace loam
