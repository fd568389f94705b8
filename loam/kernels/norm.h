// Normalisation over the last axis. Legend: N rows (all axes but the last; x and out may also be [N/G,G,C], where the G
// rows of a group lie apart from the next group's), C width. x, out and their gradients share one float dtype (f32,
// bf16 or f16); weights, statistics and weight gradients are f32; arithmetic is f32 (sums of a row in a fixed order).
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

// RMSNorm, Zhang and Sennrich 2019: out = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). The product with the
// weight is taken before rounding to the dtype.
struct RmsNormFwdArgs {
  View x;       // [N,C]
  View weight;  // [C], f32
  float eps = 1e-5f;
  View out;   // [N,C]
  View rstd;  // [N], f32; absent when nothing will be differentiated
};

// With g = d_out * weight and h = x * rstd:  dx = rstd * (g - h * mean(g * h)),  d_weight = sum over rows of d_out * h.
struct RmsNormBwdArgs {
  View x, weight, rstd, d_out;
  View d_x;                   // [N,C] or absent
  bool accumulate_x = false;  // d_x += instead of d_x =
  View d_weight;              // [C], f32, or absent
  bool accumulate_weight = false;
};

// LayerNorm, Ba, Kiros and Hinton 2016: out = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps) with the
// biased variance.
struct LayerNormFwdArgs {
  View x;       // [N,C]
  View weight;  // [C], f32
  View bias;    // [C], f32, or absent
  float eps = 1e-5f;
  View out;   // [N,C]
  View mean;  // [N], f32; absent when nothing will be differentiated
  View rstd;  // [N], f32; likewise
};

// With g = d_out * weight and h = (x - mean) * rstd:  dx = rstd * (g - mean(g) - h * mean(g * h)).
struct LayerNormBwdArgs {
  View x, weight, mean, rstd, d_out;
  View d_x;  // [N,C] or absent
  bool accumulate_x = false;
  View d_weight, d_bias;           // [C], f32, or absent
  bool accumulate_weight = false;  // of both
};

}  // namespace loam
