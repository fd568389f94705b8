// Activations and gated units, element by element; f32, bf16 or f16, arithmetic in f32. Legend: N rows, F width of the
// hidden layer.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

enum class Activation : uint8_t {
  silu,       // x sigmoid(x)
  gelu,       // x Phi(x), with the error function
  gelu_tanh,  // Hendrycks and Gimpel's approximation: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  relu,
  relu_squared,
};

// out = f(x)
struct ActivationFwdArgs {
  Activation kind = Activation::silu;
  View x;    // [N,F]
  View out;  // [N,F]; may be the same memory
};
// d_x = d_out * f'(x)
struct ActivationBwdArgs {
  Activation kind = Activation::silu;
  View x, d_out;
  View d_x;  // may be the same memory as d_out when it does not accumulate
  bool accumulate = false;
};

// Gated unit, Shazeer 2020 ("GLU variants improve Transformer"): out = f(gate) * up, where x = [gate | up] on the last
// axis.
struct GatedFwdArgs {
  Activation kind = Activation::silu;
  View x;    // [N,2F]
  View out;  // [N,F]
};
struct GatedBwdArgs {
  Activation kind = Activation::silu;
  View x;      // [N,2F]
  View d_out;  // [N,F]
  View d_x;    // [N,2F]
  bool accumulate = false;
};

}  // namespace loam
