// Rotary positions and attention.
#pragma once

#include "loam/autograd/context.h"
#include "loam/kernels/attention.h"
#include "loam/kernels/rope.h"

namespace loam::ops {

// The rotation of a model's layers: frequencies [R/2] f32 and the factor of what they rotate (loam/kernels/rope.h).
struct Rotation {
  Tensor frequency;
  float factor = 1;
};

// Rotates the heads of x [B,T,H,D] by `positions` [B,T] i32. Nothing of x is saved.
Var rope(const Context& ctx, const Var& x, const Tensor& positions, const Rotation& rotation, RopeLayout layout);

struct AttentionOptions {
  float scale = 0;  // 0: 1 / sqrt(D)
  float softcap = 0;
  Tensor slopes;  // [H] f32 or absent: ALiBi
  bool causal = true;
  int64_t window = 0;
  Tensor first_key;            // [B,T] i32 or absent
  Tensor key_count;            // [B] i32 or absent
  AttentionDropout dropout{};  // while ctx records
  Tensor max_logit;            // [B,H,T] f32, written; or absent
};

// q [B,T,H,D], k and v [B,S,K,D] -> [B,T,H,D]: loam/kernels/attention.h. Saved for backward: q, k, v, out and the
// log-sum-exp.
Var attention(const Context& ctx, const Var& q, const Var& k, const Var& v, const AttentionOptions& options);

}  // namespace loam::ops
