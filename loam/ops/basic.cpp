#include "loam/ops/basic.h"

#include "loam/ops/op.h"

namespace loam::ops {
namespace {

struct AddNode final : Node {
  const char* name() const override { return "add"; }
  void backward_input(const Context&, BackwardScope& scope) override {
    const Tensor d_out = scope.output_grad(0);
    scope.pass_input_grad(0, d_out);
    scope.pass_input_grad(1, d_out);
  }
  void visit_saved(const SavedVisitor&) const override {}
};

struct ScaleNode final : Node {
  float factor = 1;

  const char* name() const override { return "scale"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const Tensor d_out = scope.output_grad(0);
    const Tensor d_x = ctx.empty(d_out.shape(), d_out.dtype(), MemoryKind::gradients);
    ctx.kernels->scale(ctx, {d_out, factor, d_x});
    scope.pass_input_grad(0, d_x);
  }
  void visit_saved(const SavedVisitor&) const override {}
};

// x [B, ...] as rows of all that follows.
View sample_rows(const View& x, const char* op) {
  View folded = fold(x, 1, op);
  const int64_t B = x.dim(0), n = B == 0 ? 0 : folded.dim(0) / B * folded.dim(1);
  LOAM_CHECK(folded.dim(0) <= 1 || folded.stride(0) == folded.dim(1), "{}: x has gaps", op);
  folded.shape = {B, n};
  folded.strides = {n, 1};
  return folded;
}

struct DropoutNode final : Node {
  float probability = 0;
  uint64_t site = 0;

  const char* name() const override { return "dropout"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const GradTarget d_x = scope.input_grad(0);
    ctx.kernels->dropout(ctx, {sample_rows(scope.output_grad(0).view(), name()), probability, site,
                               sample_rows(d_x.view, name()), d_x.accumulate});
  }
  void visit_saved(const SavedVisitor&) const override {}
};

struct CastNode final : Node {
  const char* name() const override { return "cast"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const GradTarget d_x = scope.input_grad(0);
    ctx.kernels->copy(ctx, {scope.output_grad(0), d_x.view, d_x.accumulate});
  }
  void visit_saved(const SavedVisitor&) const override {}
};

struct SumNode final : Node {
  const char* name() const override { return "sum"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const GradTarget d_x = scope.input_grad(0);
    View everywhere = scope.output_grad(0).view();
    everywhere.shape = d_x.view.shape;
    everywhere.strides = d_x.view.shape;
    for (int axis = 0; axis < everywhere.rank(); ++axis) everywhere.strides[axis] = 0;
    ctx.kernels->copy(ctx, {everywhere, d_x.view, d_x.accumulate});
  }
  void visit_saved(const SavedVisitor&) const override {}
};

// The strides with which the elements of `t`, in order, have another shape; false if there are none. Both shapes are
// cut into the shortest runs of axes with equal numbers of elements; within a run the axes of t must lie evenly spaced.
bool strides_for(const Tensor& t, const Shape& shape, Dims& strides) {
  Dims sizes, steps;  // of t, without the axes of one element
  for (int axis = 0; axis < t.rank(); ++axis) {
    if (t.dim(axis) == 1) continue;
    sizes.push_back(t.dim(axis));
    steps.push_back(t.strides()[axis]);
  }
  strides = contiguous_strides(shape);
  int from = 0, to = 0;
  while (from < sizes.rank()) {
    int from_end = from + 1, to_end = to + 1;
    int64_t have = sizes[from], want = shape[to];
    while (have != want) {
      if (want < have) {
        want *= shape[to_end++];
      } else {
        have *= sizes[from_end++];
      }
    }
    for (int axis = from; axis + 1 < from_end; ++axis) {
      if (steps[axis] != steps[axis + 1] * sizes[axis + 1]) return false;
    }
    int64_t step = steps[from_end - 1];
    for (int axis = to_end - 1; axis >= to; --axis) {
      strides[axis] = step;
      step *= shape[axis];
    }
    from = from_end;
    to = to_end;
  }
  return true;
}

}  // namespace

Var add(const Context& ctx, const Var& a, const Var& b) {
  check_float(a.value, "add", "a");
  LOAM_CHECK(b.value && a.shape() == b.shape() && a.dtype() == b.dtype(), "add: {} {} and {} {} differ",
             dtype_name(a.dtype()), a.shape().str(), dtype_name(b.dtype()), b.shape().str());
  Var out(ctx.empty(a.shape(), a.dtype()));
  ctx.kernels->add(ctx, {a.value, b.value, out.value});
  record(ctx, AddNode{}, {a, b}, {&out});
  return out;
}

Var scale(const Context& ctx, const Var& x, float factor) {
  check_float(x.value, "scale", "x");
  Var out(ctx.empty(x.shape(), x.dtype()));
  ctx.kernels->scale(ctx, {x.value, factor, out.value});
  ScaleNode node;
  node.factor = factor;
  record(ctx, std::move(node), {x}, {&out});
  return out;
}

Var dropout(const Context& ctx, const Var& x, float probability, uint64_t site) {
  if (!ctx.tape || probability == 0) return x;
  check_float(x.value, "dropout", "x");
  LOAM_CHECK(x.value.rank() >= 2 && probability > 0 && probability < 1, "dropout: probability {} for x {}", probability,
             x.shape().str());
  Var out(ctx.empty(x.shape(), x.dtype()));
  ctx.kernels->dropout(
      ctx, {sample_rows(x.value.view(), "dropout"), probability, site, sample_rows(out.value.view(), "dropout")});
  DropoutNode node;
  node.probability = probability;
  node.site = site;
  record(ctx, std::move(node), {x}, {&out});
  return out;
}

Var cast(const Context& ctx, const Var& x, DType dtype) {
  check_float(x.value, "cast", "x");
  LOAM_CHECK(is_float(dtype), "cast: to {}, not f32, bf16 or f16", dtype_name(dtype));
  Var out(ctx.empty(x.shape(), dtype));
  ctx.kernels->copy(ctx, {x.value, out.value});
  record(ctx, CastNode{}, {x}, {&out});
  return out;
}

Var reshape(const Context& ctx, const Var& x, const Shape& shape) {
  const Tensor& t = x.value;
  LOAM_CHECK(t && t.numel() == shape.product(), "reshape: {} into {}", x.shape().str(), shape.str());
  Tensor view;
  if (t.is_contiguous()) {
    view = t.reshape(shape);
  } else {
    Dims strides;
    LOAM_CHECK(strides_for(t, shape, strides), "reshape: {} with strides {} into {} needs a copy", x.shape().str(),
               t.strides().str(), shape.str());
    view = t.as_strided(shape, strides, 0);
  }
  return ctx.tape ? ctx.tape->part(x, view) : Var(view);
}

std::vector<Var> split(const Context& ctx, const Var& x, const std::vector<int64_t>& sizes) {
  int64_t total = 0;
  for (int64_t size : sizes) {
    LOAM_CHECK(size >= 0, "split: a part of size {}", size);
    total += size;
  }
  LOAM_CHECK(x.value && x.value.rank() > 0 && total == x.value.dim(-1),
             "split: the sizes add up to {}, the last axis of {} does not", total, x.shape().str());
  std::vector<Var> parts;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    const Tensor view = x.value.narrow(-1, begin, size);
    parts.push_back(ctx.tape ? ctx.tape->part(x, view) : Var(view));
    begin += size;
  }
  return parts;
}

void fill(const ExecContext& ctx, const Tensor& out, float value) { ctx.kernels->fill(ctx, {out, value}); }

Var sum(const Context& ctx, const Var& x) {
  check_float(x.value, "sum", "x");
  LOAM_CHECK(x.value.is_contiguous(), "sum: shape {} is not contiguous", x.shape().str());
  Var out(ctx.empty({1}, DType::f32));
  sum_all(ctx, x.value, out.value);
  record(ctx, SumNode{}, {x}, {&out});
  return out;
}

}  // namespace loam::ops
