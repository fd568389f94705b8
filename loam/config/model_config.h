// What a Transformer is made of. A model is a configuration: one set of fields, combined freely, for every
// architecture.
#pragma once

#include <cstdint>
#include <string>

#include "loam/config/fields.h"

namespace loam {

enum class NormKind { rms, layer };
enum class ActivationKind { silu, gelu, gelu_tanh, relu, relu_squared };
enum class PositionKind { rope, learned, none };
enum class RopePairs { half, interleaved };

const std::vector<std::pair<NormKind, const char*>>& enum_names(NormKind);
const std::vector<std::pair<ActivationKind, const char*>>& enum_names(ActivationKind);
const std::vector<std::pair<PositionKind, const char*>>& enum_names(PositionKind);
const std::vector<std::pair<RopePairs, const char*>>& enum_names(RopePairs);

// Legend: V vocabulary, C width, L layers, H heads, K key/value heads, D head dim, F hidden width of the feed-forward
// block.
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
  ActivationKind activation = ActivationKind::silu;
  bool gated = true;
  bool attention_bias = false;      // on q, k and v
  bool attention_out_bias = false;  // on the projection after attention
  bool mlp_bias = false;
  bool norm_bias = false;  // of LayerNorm
  PositionKind positions = PositionKind::rope;
  double rope_theta = 10000;
  RopePairs rope_pairs = RopePairs::half;
  bool tied_embeddings = true;
  double init_std = 0.02;            // of matrices and embeddings
  bool scaled_residual_init = true;  // projections into the residual stream: init_std / sqrt(2 L)
};

template <class Config, class Visitor>
requires FieldsOf<Config, ModelConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("vocab_size", c.vocab_size, "vocabulary size V; 0: the tokenizer's, rounded up to a multiple of 64");
  visit("context_length", c.context_length, "longest sequence in tokens");
  visit("layers", c.layers, "number of Transformer blocks L");
  visit("dim", c.dim, "width of the residual stream C");
  visit("heads", c.heads, "query heads H");
  visit("kv_heads", c.kv_heads, "key/value heads K; 0: as many as heads");
  visit("head_dim", c.head_dim, "head dim D; 0: dim / heads");
  visit("ffn_dim", c.ffn_dim,
        "hidden width F of the feed-forward block; 0: 4 dim, or 8/3 dim rounded up to a multiple of 64 when gated");
  visit("norm", c.norm, "kind of normalisation");
  visit("norm_eps", c.norm_eps, "epsilon inside its square root");
  visit("activation", c.activation, "activation of the feed-forward block");
  visit("gated", c.gated, "gated feed-forward block: f(gate) * up");
  visit("attention_bias", c.attention_bias, "biases on query, key and value projections");
  visit("attention_out_bias", c.attention_out_bias, "bias on the projection after attention");
  visit("mlp_bias", c.mlp_bias, "biases in the feed-forward block");
  visit("norm_bias", c.norm_bias, "bias of LayerNorm");
  visit("positions", c.positions, "how positions enter the model");
  visit("rope_theta", c.rope_theta, "base of the rotary frequencies");
  visit("rope_pairs", c.rope_pairs, "which elements of a head rotate together: (k, k + D/2) or (2k, 2k + 1)");
  visit("tied_embeddings", c.tied_embeddings, "the head shares the embedding's table");
  visit("init_std", c.init_std, "standard deviation of initial weights");
  visit("scaled_residual_init", c.scaled_residual_init,
        "divide it by sqrt(2 layers) for projections into the residual stream");
}

// Compiled once, in model_config.cpp.
extern template Json config_to_json(const ModelConfig&);
extern template void config_from_json(ModelConfig&, const Json&);
extern template void config_set(ModelConfig&, std::string_view);
extern template std::vector<FieldInfo> config_fields(const ModelConfig&);

// Fills in every 0 that stands for a derived value, and checks that the whole makes sense: Error{kInvalidArgument} that
// names the field. The only place that computes one setting of a model from another. Idempotent.
ModelConfig derive(ModelConfig config);

// Parameters of a derived configuration (tied tables count once), and of these, the ones in neither embedding nor head.
int64_t parameter_count(const ModelConfig& config);
int64_t non_embedding_parameter_count(const ModelConfig& config);
// Floating-point operations of forward and backward for one token in rows of `length` tokens: 6 per matrix weight and
// use, and 12 L H D per visible key on average.
double training_flops_per_token(const ModelConfig& config, int64_t length);

}  // namespace loam
