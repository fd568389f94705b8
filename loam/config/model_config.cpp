#include "loam/config/model_config.h"

#include <algorithm>
#include <cmath>

namespace loam {

// The names of an enum, in the order of the configuration table.
#define LOAM_ENUM_NAMES(Enum, ...)                                             \
  const std::vector<std::pair<Enum, const char*>>& enum_names(Enum) {          \
    using enum Enum;                                                           \
    static const std::vector<std::pair<Enum, const char*>> names{__VA_ARGS__}; \
    return names;                                                              \
  }

LOAM_ENUM_NAMES(NormKind, {rms, "rms"}, {layer, "layer"})
LOAM_ENUM_NAMES(NormScale, {weight, "weight"}, {one_plus_weight, "one_plus_weight"}, {none, "none"})
LOAM_ENUM_NAMES(NormPlace, {pre, "pre"}, {post, "post"}, {output, "output"}, {sandwich, "sandwich"}, {none, "none"})
LOAM_ENUM_NAMES(BlockForm, {serial, "serial"}, {parallel, "parallel"}, {parallel_one_norm, "parallel_one_norm"})
LOAM_ENUM_NAMES(QkNorm, {none, "none"}, {head, "head"}, {full, "full"})
LOAM_ENUM_NAMES(ActivationKind, {silu, "silu"}, {gelu, "gelu"}, {gelu_tanh, "gelu_tanh"}, {relu, "relu"},
                {relu_squared, "relu_squared"})
LOAM_ENUM_NAMES(PositionKind, {rope, "rope"}, {learned, "learned"}, {sinusoidal, "sinusoidal"}, {alibi, "alibi"},
                {none, "none"})
LOAM_ENUM_NAMES(RopePairs, {half, "half"}, {interleaved, "interleaved"})
LOAM_ENUM_NAMES(RopeScalingKind, {none, "none"}, {linear, "linear"}, {ntk, "ntk"}, {yarn, "yarn"}, {llama3, "llama3"},
                {longrope, "longrope"})
LOAM_ENUM_NAMES(AttentionSpan, {full, "full"}, {window, "window"})
LOAM_ENUM_NAMES(InitKind, {normal, "normal"}, {truncated_normal, "truncated_normal"})
LOAM_ENUM_NAMES(HeadKind, {language_model, "language_model"}, {scalar, "scalar"})

namespace {

// Far above any real model, and so low that no product of sizes overflows: a configuration may come from a stranger.
constexpr double kMaxWidth = 1 << 20, kMaxLength = 1 << 24, kMaxFactor = 1e6;
constexpr int64_t kMaxLayers = 4096;
constexpr NumberRange kRanges[] = {
    {"vocab_size", 0, kMaxLength},
    {"context_length", 1, kMaxLength},
    {"layers", 1, kMaxLayers},
    {"dim", 1, kMaxWidth},
    {"heads", 1, 4096},
    {"kv_heads", 0, 4096},
    {"head_dim", 0, 256},
    {"ffn_dim", 0, kMaxWidth},
    {"norm_eps", 0, 1, true},
    {"attention_scale", 0, kMaxFactor},
    {"attention_softcap", 0, kMaxFactor},
    {"window", 0, kMaxLength},
    {"rope_theta", 1, 1e30, true},
    {"window_rope_theta", 0, 1e30},
    {"rope_dim", 0, 256},
    {"embedding_scale", 0, kMaxFactor, true},
    {"residual_scale", 0, kMaxFactor, true},
    {"logit_scale", 0, kMaxFactor, true},
    {"logit_softcap", 0, kMaxFactor},
    {"dropout", 0, 0.95},
    {"attention_dropout", 0, 0.95},
    {"init_std", 0, 1e3},
    {"embedding_init_std", 0, 1e3},
    {"mup_base_dim", 0, kMaxWidth},
};
constexpr NumberRange kScalingRanges[] = {
    {"factor", 1, kMaxFactor},           {"original_context", 0, kMaxLength}, {"low_freq_factor", 0, kMaxFactor, true},
    {"high_freq_factor", 0, kMaxFactor}, {"beta_fast", 0, kMaxFactor, true},  {"beta_slow", 0, kMaxFactor, true},
    {"attention_factor", 0, kMaxFactor},
};

void check_heads(const ModelConfig& c) {
  LOAM_CHECK(c.heads % c.kv_heads == 0, "model.heads ({}) is not a multiple of model.kv_heads ({})", c.heads,
             c.kv_heads);
  LOAM_CHECK(c.head_dim % 8 == 0 && c.head_dim > 0 && c.head_dim <= 256,
             "model.head_dim is {}; it must be a multiple of 8, at most 256", c.head_dim);
  LOAM_CHECK(c.rope_dim % 2 == 0 && c.rope_dim <= c.head_dim,
             "model.rope_dim is {}; it must be even, at most model.head_dim ({})", c.rope_dim, c.head_dim);
}

bool uses_rope(const ModelConfig& c) {
  if (c.layer_positions.empty()) return c.positions == PositionKind::rope;
  return std::find(c.layer_positions.begin(), c.layer_positions.end(), PositionKind::rope) != c.layer_positions.end();
}

const char* name_of(RopeScalingKind kind) {
  for (const auto& [known, name] : enum_names(kind)) {
    if (known == kind) return name;
  }
  return "";
}

void derive_rope_scaling(ModelConfig& c) {
  RopeScaling& s = c.rope_scaling;
  check_ranges(s, "model.rope_scaling", kScalingRanges);
  if (s.kind == RopeScalingKind::none || s.kind == RopeScalingKind::ntk || s.kind == RopeScalingKind::linear) return;
  LOAM_CHECK(s.factor > 1 || s.original_context > 0,
             "model.rope_scaling: {} needs a factor above 1 or an original_context", name_of(s.kind));
  if (s.original_context == 0) {
    s.original_context = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(c.context_length) / s.factor));
  }
  LOAM_CHECK(s.kind != RopeScalingKind::llama3 || s.low_freq_factor < s.high_freq_factor,
             "model.rope_scaling.low_freq_factor ({}) is not below high_freq_factor ({})", s.low_freq_factor,
             s.high_freq_factor);
  LOAM_CHECK(s.kind != RopeScalingKind::yarn || s.beta_slow < s.beta_fast,
             "model.rope_scaling.beta_slow ({}) is not below beta_fast ({})", s.beta_slow, s.beta_fast);
  if (s.kind != RopeScalingKind::longrope) return;
  LOAM_CHECK(s.original_context > 1, "model.rope_scaling.original_context is {}", s.original_context);
  for (const auto* factors : {&s.short_factors, &s.long_factors}) {
    const char* name = factors == &s.short_factors ? "short_factors" : "long_factors";
    LOAM_CHECK(static_cast<int64_t>(factors->size()) == c.rope_dim / 2,
               "model.rope_scaling.{} has {} numbers; {} frequencies are rotated", name, factors->size(),
               c.rope_dim / 2);
    for (const double factor : *factors) {
      LOAM_CHECK(factor > 0 && factor <= kMaxFactor, "model.rope_scaling.{}: {} is not above 0", name, factor);
    }
  }
}

// The shortest list that says the same of all layers.
template <class T>
void shorten(std::vector<T>& pattern, int64_t layers, const char* name) {
  LOAM_CHECK(static_cast<int64_t>(pattern.size()) <= layers, "model.{} has {} entries for {} layers", name,
             pattern.size(), layers);
  if (pattern.empty()) return;
  const auto at = [&](int64_t layer) { return pattern[static_cast<size_t>(layer) % pattern.size()]; };
  for (int64_t period = 1; period < static_cast<int64_t>(pattern.size()); ++period) {
    bool repeats = true;
    for (int64_t layer = period; layer < layers && repeats; ++layer) repeats = at(layer) == at(layer % period);
    if (!repeats) continue;
    pattern.resize(static_cast<size_t>(period));
    return;
  }
}

void derive_layers(ModelConfig& c) {
  shorten(c.attention_spans, c.layers, "attention_spans");
  shorten(c.layer_positions, c.layers, "layer_positions");
  const bool windows =
      std::find(c.attention_spans.begin(), c.attention_spans.end(), AttentionSpan::window) != c.attention_spans.end();
  LOAM_CHECK(!windows || c.window > 0, "model.attention_spans has windows, but model.window is 0");
  if (c.attention_spans == std::vector{AttentionSpan::window}) c.attention_spans.clear();
  if (c.attention_spans == std::vector{AttentionSpan::full}) {
    c.attention_spans.clear();
    c.window = 0;
  }
  for (const PositionKind kind : c.layer_positions) {
    LOAM_CHECK(kind == PositionKind::rope || kind == PositionKind::alibi || kind == PositionKind::none,
               "model.layer_positions may be rope, alibi or none");
  }
  if (c.layer_positions.size() == 1 && c.positions != PositionKind::learned &&
      c.positions != PositionKind::sinusoidal) {
    c.positions = c.layer_positions[0];
    c.layer_positions.clear();
  }
}

void check_parts(const ModelConfig& c) {
  constexpr int64_t kLargestTable = int64_t{1} << 28;  // elements
  LOAM_CHECK(c.positions != PositionKind::sinusoidal || c.context_length * c.dim <= kLargestTable,
             "model.context_length {} is too long for a table of sinusoidal positions", c.context_length);
  LOAM_CHECK(!c.norm_bias || c.norm == NormKind::layer, "model.norm_bias needs model.norm=layer");
  LOAM_CHECK(c.block == BlockForm::serial || c.norm_place != NormPlace::post,
             "model.norm_place=post needs model.block=serial");
  LOAM_CHECK(c.block != BlockForm::parallel_one_norm || c.norm_place == NormPlace::pre,
             "model.block=parallel_one_norm needs model.norm_place=pre");
  LOAM_CHECK(c.head == HeadKind::language_model || (c.logit_softcap == 0 && c.logit_scale == 1),
             "model.head=scalar has no logits: model.logit_scale and model.logit_softcap do not apply");
  LOAM_CHECK(!c.zero_init_head || !c.tied_embeddings || c.head == HeadKind::scalar,
             "model.zero_init_head needs model.tied_embeddings=false");
  LOAM_CHECK(c.mup_base_dim == 0 || c.init_std > 0, "model.mup_base_dim needs model.init_std above 0");
}

struct Counts {
  int64_t matrices = 0;  // of all layers
  int64_t vectors = 0;   // norms and biases
};

// Elements of one norm over `width` elements.
int64_t norm_size(const ModelConfig& c, int64_t width) {
  return width * ((c.norm_scale == NormScale::none ? 0 : 1) + (c.norm_bias ? 1 : 0));
}

Counts layer_counts(const ModelConfig& c) {
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim, qkv = q + 2 * kv;
  const int64_t up = c.ffn_dim * (c.gated ? 2 : 1);
  int64_t norms = c.norm_place == NormPlace::none ? 0 : c.norm_place == NormPlace::sandwich ? 4 : 2;
  if (c.block == BlockForm::parallel_one_norm) norms = 1;
  const int64_t qk_norm = c.qk_norm == QkNorm::none   ? 0
                          : c.qk_norm == QkNorm::head ? 2 * norm_size(c, c.head_dim)
                                                      : norm_size(c, q) + norm_size(c, kv);
  Counts n;
  n.matrices = c.layers * (qkv * c.dim + c.dim * q + up * c.dim + c.dim * c.ffn_dim);
  n.vectors = c.layers * (norms * norm_size(c, c.dim) + qk_norm + (c.attention_bias ? qkv : 0) +
                          (c.attention_out_bias ? c.dim : 0) + (c.mlp_bias ? up + c.dim : 0)) +
              (c.final_norm ? norm_size(c, c.dim) : 0);
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
  LOAM_CHECK(c.window_rope_theta == 0 || c.window_rope_theta > 1, "model.window_rope_theta is {}, not above 1",
             c.window_rope_theta);
  if (c.ffn_dim == 0) c.ffn_dim = c.gated ? (8 * c.dim + 3 * 64 - 1) / (3 * 64) * 64 : 4 * c.dim;
  derive_layers(c);
  if (uses_rope(c) && c.rope_dim == 0) c.rope_dim = c.head_dim;
  derive_rope_scaling(c);
  if (c.head == HeadKind::scalar) c.tied_embeddings = false;
  check_parts(c);
  return c;
}

AttentionSpan attention_span(const ModelConfig& c, int64_t layer) {
  if (c.attention_spans.empty()) return c.window > 0 ? AttentionSpan::window : AttentionSpan::full;
  return c.attention_spans[static_cast<size_t>(layer) % c.attention_spans.size()];
}

PositionKind layer_position(const ModelConfig& c, int64_t layer) {
  if (!c.layer_positions.empty()) return c.layer_positions[static_cast<size_t>(layer) % c.layer_positions.size()];
  return c.positions == PositionKind::rope || c.positions == PositionKind::alibi ? c.positions : PositionKind::none;
}

int64_t head_rows(const ModelConfig& c) { return c.head == HeadKind::scalar ? 1 : c.vocab_size; }

double mup_width(const ModelConfig& c) {
  return c.mup_base_dim == 0 ? 1 : static_cast<double>(c.dim) / static_cast<double>(c.mup_base_dim);
}

int64_t non_embedding_parameter_count(const ModelConfig& config) {
  const Counts n = layer_counts(config);
  return n.matrices + n.vectors;
}

int64_t parameter_count(const ModelConfig& config) {
  const int64_t positions = config.positions == PositionKind::learned ? config.context_length * config.dim : 0;
  const int64_t head = config.tied_embeddings ? 0 : head_rows(config) * config.dim;
  return non_embedding_parameter_count(config) + config.vocab_size * config.dim + positions + head +
         (config.head_bias ? head_rows(config) : 0);
}

BlockFlops block_flops_per_token(const ModelConfig& config, int64_t layer, int64_t length) {
  const auto T = static_cast<double>(length), C = static_cast<double>(config.dim);
  const double w =
      attention_span(config, layer) == AttentionSpan::window ? std::min(T, static_cast<double>(config.window)) : T;
  const double keys = w - w * (w - 1) / (2 * T);  // that a token sees on average: the first w - 1 see fewer
  const auto q = static_cast<double>(config.heads * config.head_dim);
  const auto kv = static_cast<double>(config.kv_heads * config.head_dim);
  const auto F = static_cast<double>(config.ffn_dim);
  return {2 * C * (2 * q + 2 * kv) + 4 * q * keys, 2 * C * F * (config.gated ? 3 : 2)};
}

double training_flops_per_token(const ModelConfig& config, int64_t length) {
  double forward = 2 * static_cast<double>(head_rows(config) * config.dim);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const BlockFlops block = block_flops_per_token(config, layer, length);
    forward += block.attention + block.mlp;
  }
  return 3 * forward;
}

template Json config_to_json(const ModelConfig&);
template void config_from_json(ModelConfig&, const Json&);
template void config_set(ModelConfig&, std::string_view);
template std::vector<FieldInfo> config_fields(const ModelConfig&);

}  // namespace loam
