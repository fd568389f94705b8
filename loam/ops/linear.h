// y = x W^T + b.
#pragma once

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam::ops {

// x [..., in], weight [out, in] of x's dtype, bias [out] f32 or absent -> [..., out] in x's dtype. The weight's
// gradient is accumulated in f32 by the matmul.
Var linear(const Context& ctx, const Var& x, const ParamRef& weight, const ParamRef& bias = {});

}  // namespace loam::ops
