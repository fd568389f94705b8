// What a Transformer is made of. A model is a configuration: one set of fields, combined freely, for every
// architecture.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loam/config/fields.h"

namespace loam {

enum class NormKind { rms, layer };
enum class NormScale { weight, one_plus_weight, none };
// Where a block normalises, with f for attention or the feed-forward block:
//   pre       x + f(norm(x))          GPT-2, Llama
//   post      norm(x + f(x))          Vaswani et al. 2017
//   output    x + norm(f(x))          OLMo 2
//   sandwich  x + norm(f(norm(x)))    Gemma 2
//   none      x + f(x)
enum class NormPlace { pre, post, output, sandwich, none };
// serial: x = x + attention(..); x = x + mlp(..).  parallel: x + attention(..) + mlp(..), both of x, each with a norm
// of its own (GPT-NeoX) or with one (GPT-J).
enum class BlockForm { serial, parallel, parallel_one_norm };
enum class QkNorm { none, head, full };
enum class ActivationKind { silu, gelu, gelu_tanh, relu, relu_squared };
enum class PositionKind { rope, learned, sinusoidal, alibi, none };
enum class RopePairs { half, interleaved };
enum class RopeScalingKind { none, linear, ntk, yarn, llama3, longrope };
enum class AttentionSpan { full, window };
enum class InitKind { normal, truncated_normal };
enum class HeadKind { language_model, scalar };

const std::vector<std::pair<NormKind, const char*>>& enum_names(NormKind);
const std::vector<std::pair<NormScale, const char*>>& enum_names(NormScale);
const std::vector<std::pair<NormPlace, const char*>>& enum_names(NormPlace);
const std::vector<std::pair<BlockForm, const char*>>& enum_names(BlockForm);
const std::vector<std::pair<QkNorm, const char*>>& enum_names(QkNorm);
const std::vector<std::pair<ActivationKind, const char*>>& enum_names(ActivationKind);
const std::vector<std::pair<PositionKind, const char*>>& enum_names(PositionKind);
const std::vector<std::pair<RopePairs, const char*>>& enum_names(RopePairs);
const std::vector<std::pair<RopeScalingKind, const char*>>& enum_names(RopeScalingKind);
const std::vector<std::pair<AttentionSpan, const char*>>& enum_names(AttentionSpan);
const std::vector<std::pair<InitKind, const char*>>& enum_names(InitKind);
const std::vector<std::pair<HeadKind, const char*>>& enum_names(HeadKind);

// How rotary frequencies are stretched for contexts longer than those of pre-training; loam/config/rope_scaling.h
// has the formulas.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;
  int64_t original_context = 0;                      // of pre-training; 0: context_length / factor
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: its bounds are whole dimensions
  double attention_factor = 0;  // yarn, longrope: of the rotated q and k; 0: by the method's own formula
  std::vector<double> short_factors,
      long_factors;  // longrope: one a frequency; long ones if context_length > original_context
};
template <class Config, class Visitor>
requires FieldsOf<Config, RopeScaling>
void visit_fields(Config& c, Visitor&& visit) {
  visit("kind", c.kind, "how rotary frequencies are stretched for longer contexts");
  visit("factor", c.factor, "by how much");
  visit("original_context", c.original_context, "longest sequence of pre-training; 0: context_length / factor");
  visit("low_freq_factor", c.low_freq_factor, "llama3: waves longer than original_context / this are stretched whole");
  visit("high_freq_factor", c.high_freq_factor, "llama3: waves shorter than original_context / this stay");
  visit("beta_fast", c.beta_fast, "yarn: dimensions that turn more often over the original context stay");
  visit("beta_slow", c.beta_slow, "yarn: dimensions that turn less often are stretched whole");
  visit("truncate", c.truncate, "yarn: round these bounds to whole dimensions");
  visit("attention_factor", c.attention_factor,
        "yarn, longrope: factor of the rotated queries and keys; 0: the method's own formula");
  visit("short_factors", c.short_factors,
        "longrope: by how much each frequency is stretched where context_length is at most original_context");
  visit("long_factors", c.long_factors, "longrope: by how much where it is larger");
}

// Legend: V vocabulary, C width, L layers, H heads, K key/value heads, D head dim, F hidden width of the feed-forward
// block. A list for the layers is a pattern that repeats: ["window", "full"] alternates.
struct ModelConfig {
  int64_t vocab_size = 0;        // V; 0: the tokenizer's, rounded up to a multiple of 64
  int64_t context_length = 256;  // longest sequence
  int64_t layers = 6;            // L
  int64_t dim = 256;             // C
  int64_t heads = 8;             // H
  int64_t kv_heads = 0;          // K; 0: as many as heads
  int64_t head_dim = 0;          // D; 0: C / H
  int64_t ffn_dim = 0;           // F; 0: 4 C, or 8/3 C rounded up to a multiple of 64 when gated

  NormKind norm = NormKind::rms;
  double norm_eps = 1e-5;
  NormScale norm_scale = NormScale::weight;
  bool norm_bias = false;  // of LayerNorm
  NormPlace norm_place = NormPlace::pre;
  bool final_norm = true;
  BlockForm block = BlockForm::serial;

  ActivationKind activation = ActivationKind::silu;
  bool gated = true;
  bool mlp_bias = false;

  bool attention_bias = false;      // on q, k and v
  bool attention_out_bias = false;  // on the projection after attention
  QkNorm qk_norm = QkNorm::none;
  double attention_scale = 0;                  // of q.k; 0: 1 / sqrt(D)
  double attention_softcap = 0;                // 0: none
  int64_t window = 0;                          // keys that a token sees, itself included, in layers with a window
  std::vector<AttentionSpan> attention_spans;  // of the layers; empty: all windows if there is one, else all full

  PositionKind positions = PositionKind::rope;
  std::vector<PositionKind> layer_positions;  // rope, alibi or none by layer; empty: `positions` in all
  double rope_theta = 10000;
  double window_rope_theta = 0;  // of layers with a window, unscaled; 0: as the others
  int64_t rope_dim = 0;          // rotated elements of a head; 0: D
  RopePairs rope_pairs = RopePairs::half;
  RopeScaling rope_scaling;

  double embedding_scale = 1;
  double residual_scale = 1;  // of what attention and the feed-forward block add
  double logit_scale = 1;
  double logit_softcap = 0;  // 0: none
  bool tied_embeddings = true;
  HeadKind head = HeadKind::language_model;
  bool head_bias = false;

  double dropout = 0;            // of the embedding and of what attention and the feed-forward block add
  double attention_dropout = 0;  // of attention's weights

  InitKind init = InitKind::normal;
  double init_std = 0.02;            // of matrices and embeddings; 0: sqrt(2 / (rows + columns)) of each matrix
  double embedding_init_std = 0;     // 0: init_std
  bool scaled_residual_init = true;  // projections into the residual stream: init_std / sqrt(2 L)
  bool zero_init_residual = false;   // these projections start as 0
  bool zero_init_head = false;
  int64_t mup_base_dim = 0;  // 0: standard parametrisation
};

template <class Config, class Visitor>
requires FieldsOf<Config, ModelConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("vocab_size", c.vocab_size, "vocabulary size V; 0: the tokenizer's, rounded up to a multiple of 64");
  visit("context_length", c.context_length, "longest sequence in tokens");
  visit("layers", c.layers, "number of Transformer blocks L");
  visit("dim", c.dim, "width of the residual stream C");
  visit("heads", c.heads, "query heads H");
  visit("kv_heads", c.kv_heads,
        "key/value heads K: 1 is multi-query, less than heads grouped-query; 0: as many as heads");
  visit("head_dim", c.head_dim, "head dim D; 0: dim / heads");
  visit("ffn_dim", c.ffn_dim,
        "hidden width F of the feed-forward block; 0: 4 dim, or 8/3 dim rounded up to a multiple of 64 when gated");
  visit("norm", c.norm, "kind of normalisation");
  visit("norm_eps", c.norm_eps, "epsilon inside its square root");
  visit("norm_scale", c.norm_scale, "what multiplies the normalised values: weight (starts at 1), 1 + weight, nothing");
  visit("norm_bias", c.norm_bias, "bias of LayerNorm");
  visit("norm_place", c.norm_place,
        "pre: x + f(norm(x)); post: norm(x + f(x)); output: x + norm(f(x)); sandwich: x + norm(f(norm(x))); none");
  visit("final_norm", c.final_norm, "a norm before the head");
  visit("block", c.block,
        "attention and feed-forward block one after the other, or side by side with two norms or one");
  visit("activation", c.activation, "activation of the feed-forward block");
  visit("gated", c.gated, "gated feed-forward block: f(gate) * up");
  visit("mlp_bias", c.mlp_bias, "biases in the feed-forward block");
  visit("attention_bias", c.attention_bias, "biases on query, key and value projections");
  visit("attention_out_bias", c.attention_out_bias, "bias on the projection after attention");
  visit("qk_norm", c.qk_norm,
        "norm of queries and keys before they are rotated: of each head, or of all heads together");
  visit("attention_scale", c.attention_scale, "factor of the attention scores q.k; 0: 1 / sqrt(head_dim)");
  visit("attention_softcap", c.attention_softcap,
        "attention scores s become c tanh(s / c), before ALiBi's distances; 0: they stay");
  visit("window", c.window, "keys that a token sees, itself included, in layers with a window; 0: no windows");
  visit("attention_spans", c.attention_spans,
        "which layers have the window, a pattern that repeats; empty: all if there is a window, else none");
  visit("positions", c.positions, "how positions enter the model");
  visit("layer_positions", c.layer_positions,
        "rope, alibi or none layer by layer, a pattern that repeats; empty: positions in all");
  visit("rope_theta", c.rope_theta, "base of the rotary frequencies");
  visit("window_rope_theta", c.window_rope_theta,
        "base in layers with a window, whose frequencies are not scaled then; 0: as the other layers");
  visit("rope_dim", c.rope_dim, "rotated elements of a head; 0: all");
  visit("rope_pairs", c.rope_pairs,
        "which of the rope_dim rotated elements form pairs: (k, k + rope_dim / 2) or (2k, 2k + 1)");
  visit("rope_scaling", c.rope_scaling, "rotary positions beyond the context of pre-training");
  visit("embedding_scale", c.embedding_scale, "factor of the embeddings of tokens, not of those of positions");
  visit("residual_scale", c.residual_scale,
        "factor of what attention and feed-forward block add to the residual stream");
  visit("logit_scale", c.logit_scale, "factor of the logits");
  visit("logit_softcap", c.logit_softcap, "logits l become c tanh(l / c); 0: they stay");
  visit("tied_embeddings", c.tied_embeddings, "the head shares the embedding's table");
  visit("head", c.head,
        "language_model: logits of the next token; scalar: one number a token (value and reward models)");
  visit("head_bias", c.head_bias, "bias of the head");
  visit("dropout", c.dropout,
        "share of the elements of embeddings and of what is added to the residual stream that training sets to 0");
  visit("attention_dropout", c.attention_dropout, "share of the attention weights that training sets to 0");
  visit("init", c.init, "distribution of initial weights; truncated_normal is cut at 3 standard deviations");
  visit("init_std", c.init_std,
        "standard deviation of initial weights; 0: sqrt(2 / (rows + columns)) of each matrix, 1 for embeddings");
  visit("embedding_init_std", c.embedding_init_std, "that of embeddings; 0: as init_std says");
  visit("scaled_residual_init", c.scaled_residual_init,
        "divide it by sqrt(2 layers) for projections into the residual stream");
  visit("zero_init_residual", c.zero_init_residual, "projections into the residual stream start as 0");
  visit("zero_init_head", c.zero_init_head, "the head starts as 0");
  visit("mup_base_dim", c.mup_base_dim,
        "width at which settings were tuned, for maximal update parametrisation (with Adam; head_dim should not change "
        "with the width); 0: standard parametrisation");
}

// Compiled once, in model_config.cpp.
extern template Json config_to_json(const ModelConfig&);
extern template void config_from_json(ModelConfig&, const Json&);
extern template void config_set(ModelConfig&, std::string_view);
extern template std::vector<FieldInfo> config_fields(const ModelConfig&);

// Fills in every 0 that stands for a derived value, and checks that the whole makes sense: Error{kInvalidArgument} that
// names the field. The only place that computes one setting of a model from another. Idempotent.
ModelConfig derive(ModelConfig config);

// What a layer of a derived configuration is.
AttentionSpan attention_span(const ModelConfig& config, int64_t layer);
PositionKind layer_position(const ModelConfig& config, int64_t layer);  // rope, alibi or none: what attention does
// Maximal update parametrisation (Yang et al. 2022, "Tensor Programs V", table 8, for Adam): dim / mup_base_dim, by
// which the learning rate of hidden matrices and the logits are divided, and the variance of their initial weights; 1
// without.
double mup_width(const ModelConfig& config);

int64_t head_rows(const ModelConfig& config);  // V, or 1 of a scalar head

// Parameters of a derived configuration (tied tables count once), and of these, the ones in neither embedding nor head.
int64_t parameter_count(const ModelConfig& config);
int64_t non_embedding_parameter_count(const ModelConfig& config);
// Floating-point operations of a layer's forward pass for one token in rows of `length` tokens: 2 per matrix weight,
// and 4 H D per visible key on average.
struct BlockFlops {
  double attention = 0, mlp = 0;
};
BlockFlops block_flops_per_token(const ModelConfig& config, int64_t layer, int64_t length);
// Of forward and backward of the model: 6 per matrix weight and use, and 12 L H D per visible key on average.
double training_flops_per_token(const ModelConfig& config, int64_t length);

}  // namespace loam
