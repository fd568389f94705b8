#include "loam/config/model_config.h"

namespace loam {

const std::vector<std::pair<NormKind, const char*>>& enum_names(NormKind) {
  static const std::vector<std::pair<NormKind, const char*>> names{{NormKind::rms, "rms"}, {NormKind::layer, "layer"}};
  return names;
}

const std::vector<std::pair<ActivationKind, const char*>>& enum_names(ActivationKind) {
  static const std::vector<std::pair<ActivationKind, const char*>> names{
      {ActivationKind::silu, "silu"},
      {ActivationKind::gelu, "gelu"},
      {ActivationKind::gelu_tanh, "gelu_tanh"},
      {ActivationKind::relu, "relu"},
      {ActivationKind::relu_squared, "relu_squared"}};
  return names;
}

const std::vector<std::pair<PositionKind, const char*>>& enum_names(PositionKind) {
  static const std::vector<std::pair<PositionKind, const char*>> names{
      {PositionKind::rope, "rope"}, {PositionKind::learned, "learned"}, {PositionKind::none, "none"}};
  return names;
}

const std::vector<std::pair<RopePairs, const char*>>& enum_names(RopePairs) {
  static const std::vector<std::pair<RopePairs, const char*>> names{{RopePairs::half, "half"},
                                                                    {RopePairs::interleaved, "interleaved"}};
  return names;
}

namespace {

// Far above any real model, and so low that no product of sizes overflows: a configuration may come from a stranger.
constexpr double kMaxWidth = 1 << 20, kMaxLength = 1 << 24;
constexpr NumberRange kRanges[] = {
    {"vocab_size", 0, kMaxLength},
    {"context_length", 1, kMaxLength},
    {"layers", 1, 4096},
    {"dim", 1, kMaxWidth},
    {"heads", 1, 4096},
    {"kv_heads", 0, 4096},
    {"head_dim", 0, 256},
    {"ffn_dim", 0, kMaxWidth},
    {"norm_eps", 0, 1, true},
    {"rope_theta", 0, 1e30, true},
    {"init_std", 0, 1e3},
};

void check_heads(const ModelConfig& c) {
  LOAM_CHECK(c.heads % c.kv_heads == 0, "model.heads ({}) is not a multiple of model.kv_heads ({})", c.heads,
             c.kv_heads);
  LOAM_CHECK(c.head_dim % 8 == 0 && c.head_dim > 0 && c.head_dim <= 256,
             "model.head_dim is {}; it must be a multiple of 8, at most 256", c.head_dim);
}

struct Counts {
  int64_t matrices = 0;  // of all layers
  int64_t vectors = 0;   // norms and biases
};

Counts layer_counts(const ModelConfig& c) {
  const int64_t qkv = (c.heads + 2 * c.kv_heads) * c.head_dim, up = c.ffn_dim * (c.gated ? 2 : 1);
  const int64_t norm = c.dim * (c.norm_bias ? 2 : 1);
  Counts n;
  n.matrices = c.layers * (qkv * c.dim + c.dim * c.heads * c.head_dim + up * c.dim + c.dim * c.ffn_dim);
  n.vectors = c.layers * (2 * norm + (c.attention_bias ? qkv : 0) + (c.attention_out_bias ? c.dim : 0) +
                          (c.mlp_bias ? up + c.dim : 0)) +
              norm;
  return n;
}

}  // namespace

ModelConfig derive(ModelConfig c) {
  check_ranges(c, "model", kRanges);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) {
    LOAM_CHECK(c.dim % c.heads == 0, "model.dim ({}) is not a multiple of model.heads ({})", c.dim, c.heads);
    c.head_dim = c.dim / c.heads;
  }
  check_heads(c);
  if (c.ffn_dim == 0) c.ffn_dim = c.gated ? (8 * c.dim + 3 * 64 - 1) / (3 * 64) * 64 : 4 * c.dim;
  LOAM_CHECK(!c.norm_bias || c.norm == NormKind::layer, "model.norm_bias needs model.norm=layer");
  return c;
}

int64_t non_embedding_parameter_count(const ModelConfig& config) {
  const Counts n = layer_counts(config);
  return n.matrices + n.vectors;
}

int64_t parameter_count(const ModelConfig& config) {
  const int64_t table = config.vocab_size * config.dim;
  const int64_t positions = config.positions == PositionKind::learned ? config.context_length * config.dim : 0;
  return non_embedding_parameter_count(config) + table * (config.tied_embeddings ? 1 : 2) + positions;
}

double training_flops_per_token(const ModelConfig& config, int64_t length) {
  const double matrices = static_cast<double>(layer_counts(config).matrices + config.vocab_size * config.dim);
  const double visible_keys = (static_cast<double>(length) + 1) / 2;
  return 6 * matrices + 12 * static_cast<double>(config.layers * config.heads * config.head_dim) * visible_keys;
}

template Json config_to_json(const ModelConfig&);
template void config_from_json(ModelConfig&, const Json&);
template void config_set(ModelConfig&, std::string_view);
template std::vector<FieldInfo> config_fields(const ModelConfig&);

}  // namespace loam
