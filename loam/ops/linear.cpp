#include "loam/ops/linear.h"

#include "loam/ops/op.h"

namespace loam::ops {
namespace {

struct LinearNode final : Node {
  Tensor x;
  ParamRef weight, bias;

  const char* name() const override { return "linear"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const GradTarget d_x = scope.input_grad(0);
    if (!d_x) return;
    MatmulArgs args;  // dx = dy W
    args.a = fold(scope.output_grad(0), 1, name());
    args.b = weight.value();
    args.c = fold(d_x.view, 1, name());
    args.accumulate = d_x.accumulate;
    ctx.kernels->matmul(ctx, args);
  }
  void backward_weight(const Context& ctx, BackwardScope& scope) override {
    const View d_out = fold(scope.output_grad(0), 1, name());
    if (const GradTarget d_weight = scope.param_grad(0)) {
      MatmulArgs args;  // dW += dy^T x
      args.a = d_out;
      args.transpose_a = true;
      args.b = fold(x, 1, name());
      args.c = d_weight.view;
      args.accumulate = d_weight.accumulate;
      ctx.kernels->matmul(ctx, args);
    }
    if (const GradTarget d_bias = scope.param_grad(1)) {
      ctx.kernels->sum_rows(ctx, {d_out, d_bias.view, d_bias.accumulate});
    }
  }
  void visit_saved(const SavedVisitor& visit) const override { visit("x", x); }
};

}  // namespace

Var linear(const Context& ctx, const Var& x, const ParamRef& weight, const ParamRef& bias) {
  check_float(x.value, "linear", "x");
  const Tensor w = weight.value();
  LOAM_CHECK(w.rank() == 2 && x.value.rank() >= 1 && x.value.dim(-1) == w.dim(1) && x.dtype() == w.dtype(),
             "linear: x {} {} and weight {} {} do not fit", dtype_name(x.dtype()), x.shape().str(),
             dtype_name(w.dtype()), w.shape().str());
  Var out(ctx.empty(with_last(x.shape(), w.dim(0)), x.dtype()));
  MatmulArgs args;
  args.a = fold(x.value, 1, "linear");
  args.b = w;
  args.transpose_b = true;
  args.c = fold(out.value, 1, "linear");
  if (bias) {
    const Tensor b = bias.value();
    check_vector(b, w.dim(0), "linear", "bias");
    args.bias = b;
  }
  ctx.kernels->matmul(ctx, args);

  LinearNode node;
  if (weight.trainable()) node.x = x.value;
  node.weight = weight;
  node.bias = bias;
  record(ctx, std::move(node), {x}, {&out}, {weight, bias});
  return out;
}

}  // namespace loam::ops
