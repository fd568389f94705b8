// Element-by-element kernels. Legend: N rows, C columns. All tensors of a call have the same shape unless said; any
// strides are allowed; contiguous tensors (to add or scale, of one type) are fast. float types: f32, bf16, f16;
// arithmetic is done in f32.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

// out = value
struct FillArgs {
  View out;
  float value = 0;
};

// out = in, converted to out's dtype (any float type to any, rounding to nearest even, above f16's range to infinity;
// any dtype to itself).
struct CopyArgs {
  View in;
  View out;
  bool accumulate = false;  // out += in, float types only
};

// out = a + b, each of a float type of its own. `out` may be the same memory as a or b.
struct AddArgs {
  View a, b, out;
};

// out = in * factor; may be the same memory.
struct ScaleArgs {
  View in;
  float factor = 1;
  View out;
};

// out[c] = sum over rows of in[n, c], accumulated in f32 in a fixed order: the gradient of a bias.
struct SumRowsArgs {
  View in;                  // [N, C] after folding leading axes
  View out;                 // [C], f32
  bool accumulate = false;  // out += instead of out =
};

}  // namespace loam
