// Ops that move, add and convert. An op checks shapes and dtypes (Error{kInvalidArgument} that names it), allocates its
// result, calls a kernel and records a node. No op writes to its inputs.
#pragma once

#include <vector>

#include "loam/autograd/context.h"

namespace loam::ops {

Var add(const Context& ctx, const Var& a, const Var& b);  // equal shapes and dtypes
Var scale(const Context& ctx, const Var& x, float factor);
// Dropout (loam/kernels/dropout.h) of the rows of x [B, ...]; x itself while ctx does not record, or for probability 0.
Var dropout(const Context& ctx, const Var& x, float probability, uint64_t site);
Var cast(const Context& ctx, const Var& x,
         DType dtype);  // of any float type, to nearest even; the gradient is cast back
Var reshape(const Context& ctx, const Var& x,
            const Shape& shape);  // shares memory; Error if x's strides do not allow it

// Cuts the last axis into parts of the given sizes, which share x's memory; their gradients are parts of x's gradient.
std::vector<Var> split(const Context& ctx, const Var& x, const std::vector<int64_t>& sizes);

// Overwrites memory that no tape has seen (gradients before a step, padding).
void fill(const ExecContext& ctx, const Tensor& out, float value);

// The sum of all elements, as one f32 value in a fixed order. For tests and small losses.
Var sum(const Context& ctx, const Var& x);

}  // namespace loam::ops
