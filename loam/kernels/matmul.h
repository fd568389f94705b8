// Matrix product.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

// c = alpha * op(a) op(b) (+ c if accumulate) (+ bias on each row), accumulated in f32.
// op(a) is [M,K]: a itself, or with transpose_a the transpose of a [K,M]; likewise op(b) is [K,N].
// a and b have one dtype (f32, bf16 or f16); c is f32 or that dtype. Matrices have a unit stride on the last axis and
// any row stride. No aliasing. The weight of a linear layer is [out, in], so y = x W^T is {a = x, b = W, transpose_b},
// dx = dy W is {dy, W}, dW += dy^T x is {dy, transpose_a, x, accumulate}. M, N or K of 0 is allowed: an empty sum is 0.
// A bias in f32 may be rounded to c's dtype. With Numerics::exact no split over K: a row of c does not depend on M.
struct MatmulArgs {
  View a;
  bool transpose_a = false;
  View b;
  bool transpose_b = false;
  View c;     // [M,N]
  View bias;  // [N] or absent, f32 or a's dtype
  float alpha = 1;
  bool accumulate = false;
};

// True if the bits of a product on this CPU can depend on the number of threads at this level.
bool matmul_depends_on_threads(Numerics numerics, DType dtype);

}  // namespace loam
