// RMSNorm and LayerNorm over the last axis (loam/kernels/norm.h has the formulas). Saved for backward: x and the row
// statistics.
#pragma once

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam::ops {

// What multiplies the normalised values: the weight, 1 + weight (Gemma), or nothing where the weight is absent.
enum class NormWeight : uint8_t { plain, one_plus };

// x [..., C], weight [C] f32 or absent.
Var rms_norm(const Context& ctx, const Var& x, const ParamRef& weight, float eps, NormWeight form = NormWeight::plain);
// The bias, [C] f32, may be absent.
Var layer_norm(const Context& ctx, const Var& x, const ParamRef& weight, const ParamRef& bias, float eps,
               NormWeight form = NormWeight::plain);

}  // namespace loam::ops
