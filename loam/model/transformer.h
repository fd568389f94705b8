// The one Transformer: decoder-only, by configuration. Vaswani et al. 2017; in its usual form
//   x = embedding(ids) [+ positions];   for each block: x = x + attention(norm(x)); x = x + mlp(norm(x));
//   hidden = norm(x);  logits = hidden head^T
// Legend: B batch, T tokens a row, C width, V vocabulary, L layers.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "loam/autograd/context.h"
#include "loam/config/model_config.h"
#include "loam/config/recompute_config.h"
#include "loam/nn/modules.h"
#include "loam/nn/param_store.h"
#include "loam/nn/sequence.h"
#include "loam/ops/linear_log_prob.h"

namespace loam {

// Structure only; the weights are in the ParamStore, which must outlive it.
// Thread safety: after allocate(), const members may be called from any thread (a Tape and a SequenceContext belong to
// one).
class Transformer {
 public:
  // Declares all parameters of a derived configuration in `store`. Names: "embedding", "positions",
  // "layers.N.attention_norm.weight", "layers.N.attention.qkv", "layers.N.attention.q_norm.weight" (and k_norm),
  // "layers.N.attention.out", "layers.N.attention_post_norm.weight", "layers.N.mlp_norm.weight", "layers.N.mlp.up",
  // "layers.N.mlp.down", "layers.N.mlp_post_norm.weight" (those of NormPlace::post too), "norm.weight", "head", and the
  // same with ".bias".
  Transformer(ParamStore& store, const ModelConfig& config);

  // After ParamStore::allocate(), before the first forward pass: the tables of positions, on the context's device.
  void allocate(const ExecContext& ctx);

  const ModelConfig& config() const { return config_; }
  int64_t layers() const { return static_cast<int64_t>(blocks_.size()); }
  // Of a language model; its matrix is the embedding's table when tied.
  ops::LanguageHead head() const;
  CacheSpec cache(int layer) const { return blocks_[static_cast<size_t>(layer)].attention.cache(); }

  Var embed(const Context& ctx, const Tensor& ids, SequenceContext& sequence) const;  // [B,T] i32 -> [B,T,C]
  Var block(const Context& ctx, int layer, const Var& x, SequenceContext& sequence,
            RecomputePart again = RecomputePart::none) const;  // [B,T,C] -> [B,T,C]
  // All blocks in a row. What `again` says is computed again in backward, for which `sequence` must be there still.
  // `seen`, if any, is called with what each block gives, each time that it runs.
  using Seen = std::function<void(int layer, const Tensor& x)>;
  Var blocks(const Context& ctx, Var x, SequenceContext& sequence, const RecomputeConfig& again,
             const Seen& seen = {}) const;
  Var final_norm(const Context& ctx, const Var& x) const;
  // Embedding, blocks and norm: what the losses of loam/ops/linear_log_prob.h take.
  Var hidden(const Context& ctx, const Tensor& ids, SequenceContext& sequence,
             const RecomputeConfig& again = {}) const;  // [B,T] i32 -> [B,T,C]
  // What a model with a scalar head (value, reward) says of each token: f32 [B,T].
  Var scalars(const Context& ctx, const Var& hidden) const;
  // Logits of given rows of hidden states, f32. For sampling and tests; training never makes them. hidden [N,C] ->
  // [N,V]
  Tensor logits(const Context& ctx, const Tensor& hidden) const;

 private:
  ModelConfig config_;
  ParamRef embedding_, positions_, head_, head_bias_;
  std::vector<Block> blocks_;
  std::optional<Norm> norm_;
  PositionTables tables_;
  bool allocated_ = false;
};

}  // namespace loam
