// Rotary positions and attention.
#pragma once

#include "loam/autograd/context.h"
#include "loam/kernels/attention.h"
#include "loam/kernels/rope.h"

namespace loam::ops {

// Rotates the heads of x [B,T,H,D] by `positions` [B,T] i32 with `frequency` [R/2] f32 (see loam/kernels/rope.h).
// Nothing of x is saved.
Var rope(const Context& ctx, const Var& x, const Tensor& positions, const Tensor& frequency, RopeLayout layout);

// theta^(-2k/dim) for k = 0 .. dim/2 - 1, computed in double, as f32 [dim/2].
Tensor rope_frequency(const Context& ctx, int64_t dim, double theta);

struct AttentionOptions {
  float scale = 0;  // 0: 1 / sqrt(D)
  bool causal = true;
  Tensor first_key;  // [B,T] i32 or absent
  Tensor key_count;  // [B] i32 or absent
};

// q [B,T,H,D], k and v [B,S,K,D] -> [B,T,H,D]. Saved for backward: q, k, v, out and the log-sum-exp.
Var attention(const Context& ctx, const Var& q, const Var& k, const Var& v, const AttentionOptions& options);

}  // namespace loam::ops
