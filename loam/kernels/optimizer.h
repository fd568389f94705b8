// Kernels that run over a whole contiguous group of parameters.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

// *out += sum of x^2, in f64 chunks of a fixed size added in order: the same bits for any number of threads. A
// non-finite x makes out non-finite; no sum of finite x does.
struct SumSquaresArgs {
  View x;       // [n], f32 or bf16
  double* out;  // in the device's memory
};

// AdamW, Loshchilov and Hutter 2019, in torch's form. With g = gradient * step.gradient_scale and lr =
// step.learning_rate * lr_scale:
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
//   w = w - lr weight_decay w - lr (m / beta1_correction) / (sqrt(v / beta2_correction) + eps).
// Scalars of the step come from ctx.step; step.skip != 0 changes nothing. `weight` is rewritten from the master by
// rounding to nearest even.
struct AdamwArgs {
  View master;    // [n], f32: the parameter itself
  View weight;    // [n], bf16 copy used by the model; absent when the model computes with the master
  View gradient;  // [n], f32
  View m, v;      // [n], f32
  float lr_scale = 1, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
};

}  // namespace loam
