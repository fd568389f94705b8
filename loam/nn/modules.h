// The parts of a Transformer block. A module holds references to its parameters and its settings; constructing it
// declares the parameters. Legend: B batch, T tokens a row, C width, H heads, K kv heads, D head dim, F hidden width.
#pragma once

#include <string>

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"
#include "loam/config/model_config.h"
#include "loam/nn/param_store.h"
#include "loam/nn/sequence.h"

namespace loam {

struct Norm {
  NormKind kind;
  float eps;
  ParamRef weight, bias;  // [C]
  Norm(ParamStore& store, const std::string& name, int layer, const ModelConfig& config);
  Var operator()(const Context& ctx, const Var& x) const;  // [..., C] -> [..., C]
};

struct Attention {
  int layer;
  int64_t heads, kv_heads, head_dim;
  bool rotary;
  RopePairs pairs;
  ParamRef qkv, qkv_bias;  // [(H + 2K) D, C]: rows of q, k and v
  ParamRef out, out_bias;  // [C, H D]
  Attention(ParamStore& store, const std::string& name, int layer, const ModelConfig& config);
  // frequency [D/2] f32, unused without rotary positions.
  Var operator()(const Context& ctx, const Var& x, const Tensor& frequency,
                 SequenceContext& sequence) const;  // [B,T,C] -> [B,T,C]
  CacheSpec cache() const { return {kv_heads, head_dim}; }
};

struct Mlp {
  ActivationKind activation;
  bool gated;
  ParamRef up, up_bias;      // [F, C], or [2F, C] when gated: rows of gate, then of up
  ParamRef down, down_bias;  // [C, F]
  Mlp(ParamStore& store, const std::string& name, int layer, const ModelConfig& config);
  Var operator()(const Context& ctx, const Var& x) const;
};

}  // namespace loam
