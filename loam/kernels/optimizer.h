// Kernels that run over a whole contiguous group of parameters.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

// *out += sum of x^2, in f64 chunks of a fixed size added in order: the same bits for any number of threads. A
// non-finite x makes out non-finite; no sum of finite x does.
struct SumSquaresArgs {
  View x;       // [n], f32, bf16 or f16
  double* out;  // in the device's memory
};

// From the sum of squares of all gradients: step.gradient_scale *= min(1, max_norm / (norm + 1e-6)), unless max_norm is
// 0; and step.skip = 1 unless this sum and that of the losses are finite. Both lie in the device's memory.
struct ClipArgs {
  const double* squares;
  const double* losses = nullptr;  // or absent
  double max_norm = 0;
};

// What every rule updates: a run of n parameters. In the formulas below g = gradient * step.gradient_scale, w the
// master, lr = step.learning_rate * lr_scale and decay = weight_decay. Scalars of the step come from ctx.step;
// step.skip != 0 changes nothing. Shares near 1 are double, so that 1 - share has all its digits. `weight` is rewritten
// from the master by rounding to nearest even. An element depends on no other one: the same bits for any number of
// threads.
struct UpdateArgs {
  View master;    // [n], f32: the parameter itself
  View weight;    // [n], bf16 or f16 copy used by the model; absent when the model computes with the master
  View gradient;  // [n], f32
  float lr_scale = 1, weight_decay = 0;
};

// m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2;  c1 = 1 - beta1^t and c2 = 1 - beta2^t with
// t = step.updates + 1, in double: near 1 a float has lost their digits.
//   decoupled  AdamW, Loshchilov and Hutter 2019, in torch's form:
//              w = w - lr decay w - lr (m / c1) / (sqrt(v / c2) + eps)
//   l2         Adam, Kingma and Ba 2015: g += decay w first, then the same without the decay
//   course     AdamW as Stanford's CS336 writes it: with eps beside the root that is not corrected, and decay last:
//              w = w - lr sqrt(c2) / c1 m / (sqrt(v) + eps), then w = w - lr decay w
enum class AdamForm : uint8_t { decoupled, l2, course };
struct AdamwArgs : UpdateArgs {
  View m, v;  // [n], f32
  double beta1 = 0.9, beta2 = 0.95;
  float eps = 1e-8f;
  AdamForm form = AdamForm::decoupled;
};

// torch.optim.SGD: g += decay w; with `momentum` buffer = momentum buffer + (1 - dampening) g, the first one g itself
// (step.updates = 0); w = w - lr buffer, with Nesterov w - lr (g + momentum buffer). Without a buffer w - lr g.
struct SgdArgs : UpdateArgs {
  View buffer;  // [n], f32; absent without momentum
  float momentum = 0;
  double dampening = 0;
  bool nesterov = false;
};

// AdaGrad, Duchi et al. 2011, as torch.optim.Adagrad: g += decay w, sum += g^2, w = w - lr g / (sqrt(sum) + eps).
struct AdagradArgs : UpdateArgs {
  View sum;  // [n], f32
  float eps = 1e-8f;
};

// RMSProp, Hinton 2012, as torch.optim.RMSprop: g += decay w, v = alpha v + (1 - alpha) g^2, d = g / (sqrt(v) + eps);
// w = w - lr d, with momentum buffer = momentum buffer + d and w - lr buffer.
struct RmspropArgs : UpdateArgs {
  View v;       // [n], f32
  View buffer;  // [n], f32; absent without momentum
  double alpha = 0.99;
  float eps = 1e-8f, momentum = 0;
};

// Lion, Chen et al. 2023, algorithm 2: w = w - lr (sign(beta1 m + (1 - beta1) g) + decay w), then
// m = beta2 m + (1 - beta2) g. sign(0) = 0.
struct LionArgs : UpdateArgs {
  View m;  // [n], f32
  double beta1 = 0.9, beta2 = 0.99;
};

// The first half of Muon (Jordan et al. 2024, in torch.optim.Muon's form): m = momentum m + (1 - momentum) g, and
// out = m, with Nesterov (1 - momentum) g + momentum m. step.skip != 0: m stays and out is 0.
struct MuonMomentumArgs {
  View gradient, m;  // [n], f32
  View out;          // [n], f32
  double momentum = 0.95;
  bool nesterov = true;
};

// The second half: w = w - lr decay w - lr scale update.
struct MuonApplyArgs : UpdateArgs {  // without a gradient
  View update;                       // [n], f32
  float scale = 1;
};

// x = about U V^T of its singular value decomposition: x / max(|x|, 1e-7) in the Frobenius norm, then `steps` times
// x = a x + (b A + c A^2) x with A = x x^T and (a, b, c) = (3.4445, -4.7750, 2.0315), which brings singular values
// near 1 (Jordan et al. 2024; Newton and Schulz's iteration of degree five). Where there are more rows than columns
// A = x^T x stands on the right. In f32.
struct OrthogonalizeArgs {
  View x;  // [R, C], f32, contiguous
  int steps = 5;
};

}  // namespace loam
