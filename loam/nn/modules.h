// The parts of a Transformer block. A module holds references to its parameters and its settings; constructing it
// declares the parameters. Legend: B batch, T tokens a row, C width, H heads, K kv heads, D head dim, F hidden width.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"
#include "loam/config/model_config.h"
#include "loam/config/recompute_config.h"
#include "loam/nn/param_store.h"
#include "loam/nn/positions.h"
#include "loam/nn/sequence.h"
#include "loam/ops/activation.h"
#include "loam/ops/norm.h"

namespace loam {

// Distribution of the initial values of a matrix [rows, columns]; those of a projection into the residual stream are
// smaller, so that its variance does not grow with depth (GPT-2).
ParamInit matrix_init(const ModelConfig& config, int64_t rows, int64_t columns, bool into_residual = false);

struct Norm {
  NormKind kind;
  float eps;
  ops::NormWeight form;
  ParamRef weight, bias;  // [width], or absent
  Norm(ParamStore& store, const std::string& name, int layer, const ModelConfig& config, int64_t width);
  Var operator()(const Context& ctx, const Var& x) const;  // [..., width] -> [..., width]
};

struct Attention {
  int layer;
  int64_t heads, kv_heads, head_dim;
  PositionKind position;
  bool windowed;
  RopeLayout layout;
  QkNorm qk_norm;
  ops::AttentionOptions options;  // but for masks and slopes
  ParamRef qkv, qkv_bias;         // [(H + 2K) D, C]: rows of q, k and v
  ParamRef out, out_bias;         // [C, H D]
  std::optional<Norm> q_norm, k_norm;
  Attention(ParamStore& store, const std::string& name, int layer, const ModelConfig& config);
  Var operator()(const Context& ctx, const Var& x, const PositionTables& tables,
                 SequenceContext& sequence) const;  // [B,T,C] -> [B,T,C]
  CacheSpec cache() const { return {kv_heads, head_dim}; }
};

struct Mlp {
  Activation activation;
  bool gated;
  ParamRef up, up_bias;      // [F, C], or [2F, C] when gated: rows of gate, then of up
  ParamRef down, down_bias;  // [C, F]
  Mlp(ParamStore& store, const std::string& name, int layer, const ModelConfig& config);
  Var operator()(const Context& ctx, const Var& x) const;
};

// Attention and feed-forward block with their norms and residual connections: ModelConfig::norm_place and ::block.
struct Block {
  int layer;
  NormPlace place;
  BlockForm form;
  float residual_scale, dropout;
  std::optional<Norm> attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
  Attention attention;
  Mlp mlp;
  Block(ParamStore& store, int layer, const ModelConfig& config);
  // `again`: what backward computes again, for which tables and sequence must be there still.
  Var operator()(const Context& ctx, const Var& x, const PositionTables& tables, SequenceContext& sequence,
                 RecomputePart again = RecomputePart::none) const;

 private:
  using Part = std::function<Var(const Context& ctx, const Var& x)>;
  Var serial(const Context& ctx, const Var& x, const Part& attended, const Part& fed, RecomputePart again) const;
  Var parallel(const Context& ctx, const Var& x, const Part& attended, const Part& fed, RecomputePart again) const;
  // What is added to the residual stream of what attention or the feed-forward block gave; `site` of its dropout.
  Var branch(const Context& ctx, const Var& y, const std::optional<Norm>& post_norm, uint64_t site) const;
  uint64_t attention_site() const;
  uint64_t mlp_site() const;
};

}  // namespace loam
