// What every op does: check its tensors, see them as kernels want them, record its node.
#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "loam/autograd/context.h"
#include "loam/autograd/node.h"
#include "loam/autograd/tape.h"
#include "loam/kernels/kernel_table.h"

namespace loam::ops {

using SavedVisitor = std::function<void(std::string_view what, const Tensor& tensor)>;

void check_float(const Tensor& t, const char* op, const char* what);
// A vector parameter: [size], f32.
void check_vector(const Tensor& t, int64_t size, const char* op, const char* what);

// The same elements with all axes but the last `kept` folded into one. Error{kInvalidArgument} that names the op if
// those do not lie evenly spaced.
View fold(const View& view, int kept, const char* op);
inline View fold(const Tensor& t, int kept, const char* op) { return fold(t.view(), kept, op); }
// Elements [begin, begin + length) of the first axis.
View slice(View view, int64_t begin, int64_t length);
// `shape` with another last axis.
Shape with_last(Shape shape, int64_t size);

// True if ctx records and something wants a gradient: then the op computes what its backward pass needs.
bool differentiates(const Context& ctx, std::initializer_list<const Var*> inputs,
                    std::initializer_list<ParamRef> params = {});

// Records `node` if ctx records.
template <class SomeNode>
void record(const Context& ctx, SomeNode node, std::initializer_list<Var> inputs, std::initializer_list<Var*> outputs,
            std::initializer_list<ParamRef> params = {}) {
  if (!ctx.tape) return;
  ctx.tape->record(std::make_unique<SomeNode>(std::move(node)), std::span(inputs.begin(), inputs.size()),
                   std::span(outputs.begin(), outputs.size()), std::span(params.begin(), params.size()));
}

// out = the sum of all elements of contiguous x, one f32, in a fixed order of short sums.
void sum_all(const ExecContext& ctx, const Tensor& x, const Tensor& out);

}  // namespace loam::ops
