// y = x W^T + b.
#pragma once

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam::ops {

// x [..., in], weight [out, in] of x's dtype, bias [out] f32 or absent -> [..., out] in x's dtype. The weight's
// gradient is accumulated in f32 by the matmul.
Var linear(const Context& ctx, const Var& x, const ParamRef& weight, const ParamRef& bias = {});

// The logits of a language-model head, x W^T in f32 whatever the weight's dtype; records nothing. x [..., C], weight
// [V,C] -> [..., V].
Tensor logits(const Context& ctx, const Tensor& x, const ParamRef& weight);

}  // namespace loam::ops
