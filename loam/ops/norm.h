// RMSNorm and LayerNorm over the last axis (loam/kernels/norm.h has the formulas). Saved for backward: x and the row
// statistics.
#pragma once

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam::ops {

Var rms_norm(const Context& ctx, const Var& x, const ParamRef& weight, float eps);  // x [..., C], weight [C] f32
Var layer_norm(const Context& ctx, const Var& x, const ParamRef& weight, const ParamRef& bias,
               float eps);  // bias may be absent

}  // namespace loam::ops
