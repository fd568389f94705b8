// The one Transformer: decoder-only, by configuration. Vaswani et al. 2017, with the pre-norm residual form of GPT-2.
//   x = embedding(ids) [+ learned positions];   for each block: x = x + attention(norm(x)); x = x + mlp(norm(x));
//   hidden = norm(x)
// Legend: B batch, T tokens a row, C width, V vocabulary, L layers.
#pragma once

#include <vector>

#include "loam/autograd/context.h"
#include "loam/config/model_config.h"
#include "loam/nn/modules.h"
#include "loam/nn/param_store.h"
#include "loam/nn/sequence.h"
#include "loam/ops/linear_log_prob.h"

namespace loam {

struct Block {
  Norm attention_norm;
  Attention attention;
  Norm mlp_norm;
  Mlp mlp;
  Block(ParamStore& store, int layer, const ModelConfig& config);
  Var operator()(const Context& ctx, const Var& x, const Tensor& frequency, SequenceContext& sequence) const;
};

// Structure only; the weights are in the ParamStore, which must outlive it.
// Thread safety: after allocate(), const members may be called from any thread (a Tape and a SequenceContext belong to
// one).
class Transformer {
 public:
  // Declares all parameters of a derived configuration in `store`. Names: "embedding", "positions",
  // "layers.N.attention_norm.weight", "layers.N.attention.qkv", "layers.N.attention.out", "layers.N.mlp_norm.weight",
  // "layers.N.mlp.up", "layers.N.mlp.down", "norm.weight", "head", and the same with ".bias".
  Transformer(ParamStore& store, const ModelConfig& config);

  // Beside ParamStore::allocate(), before the first forward pass: the rotary frequencies, on the context's device.
  void allocate(const ExecContext& ctx);

  const ModelConfig& config() const { return config_; }
  int64_t layers() const { return static_cast<int64_t>(blocks_.size()); }
  const ParamRef& head_weight() const { return head_; }  // [V,C]; the embedding's table when tied
  CacheSpec cache(int layer) const { return blocks_[static_cast<size_t>(layer)].attention.cache(); }

  Var embed(const Context& ctx, const Tensor& ids, SequenceContext& sequence) const;        // [B,T] i32 -> [B,T,C]
  Var block(const Context& ctx, int layer, const Var& x, SequenceContext& sequence) const;  // [B,T,C] -> [B,T,C]
  Var final_norm(const Context& ctx, const Var& x) const;
  // The three in a row: what the losses of loam/ops/linear_log_prob.h take.
  Var hidden(const Context& ctx, const Tensor& ids, SequenceContext& sequence) const;  // [B,T] i32 -> [B,T,C]
  // Logits of given rows of hidden states, f32. For sampling and tests; training never makes them. hidden [N,C] ->
  // [N,V]
  Tensor logits(const Context& ctx, const Tensor& hidden) const;

 private:
  ModelConfig config_;
  ParamRef embedding_, positions_, head_;
  std::vector<Block> blocks_;
  Norm norm_;
  Tensor frequency_;  // [D/2] f32; empty without rotary positions
};

}  // namespace loam
