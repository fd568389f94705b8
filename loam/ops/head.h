// What linear_log_prob and cross_entropy share.
#pragma once

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam::ops {

// Bound on the logits in memory at any time, in f32; a bf16 model needs half of it again.
inline constexpr int64_t kLogitsBytes = int64_t{64} << 20;

struct Head {
  int64_t N, C, V;
  View hidden;   // [N,C]
  View targets;  // [N], i32
};
// Checks shapes, dtypes and the range of the targets.
Head check_head(const char* op, const Tensor& hidden, const ParamRef& weight, const Tensor& targets);

// The gradient of logits in the model's dtype, for the matmuls of backward; empty if it is f32 already.
Tensor narrowed_logits(const ExecContext& ctx, const View& d_logits, DType dtype);

}  // namespace loam::ops
