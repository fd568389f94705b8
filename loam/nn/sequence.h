// What a layer sees of the sequences it works on: positions, and the memory of attention. One model definition serves
// training, scoring and generation; what differs is the SequenceContext.
#pragma once

#include <cstdint>
#include <utility>

#include "loam/autograd/context.h"
#include "loam/ops/attention.h"

namespace loam {

// What a layer remembers between calls: all keys and values.
struct CacheSpec {
  int64_t kv_heads = 0, head_dim = 0;
};

class SequenceContext {
 public:
  virtual ~SequenceContext() = default;
  // [B,T] i32: the position of each token of this call.
  virtual const Tensor& positions() const = 0;
  // Attention of the new queries to what the layer remembers, the new keys and values included. q [B,T,H,D], k and v
  // [B,T,K,D] (rotated already) -> [B,T,H,D]. `options` is what the layer asks for; masks of the sequences come from
  // here.
  virtual Var attend(const Context& ctx, int layer, const Var& q, const Var& k, const Var& v,
                     const ops::AttentionOptions& options) = 0;
};

// Whole rows, nothing remembered: training, scoring, prefill without a cache. `first_key` [B,T] i32 keeps packed
// documents apart; empty: each row is one document.
class FullSequence : public SequenceContext {
 public:
  FullSequence(Tensor positions, Tensor first_key)
      : positions_(std::move(positions)), first_key_(std::move(first_key)) {}
  const Tensor& positions() const override { return positions_; }
  Var attend(const Context& ctx, int layer, const Var& q, const Var& k, const Var& v,
             const ops::AttentionOptions& options) override;

 private:
  Tensor positions_, first_key_;
};

}  // namespace loam
