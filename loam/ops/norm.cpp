#include "loam/ops/norm.h"

#include "loam/ops/op.h"

namespace loam::ops {
namespace {

struct RmsNormNode final : Node {
  Tensor x, rstd;
  ParamRef weight;

  const char* name() const override { return "rms_norm"; }
  void run(const Context& ctx, BackwardScope& scope, const GradTarget& d_x, const GradTarget& d_weight) const {
    if (!d_x && !d_weight) return;
    RmsNormBwdArgs args;
    args.x = fold(x, 1, name());
    args.weight = weight.value();
    args.rstd = rstd;
    args.d_out = fold(scope.output_grad(0), 1, name());
    if (d_x) args.d_x = fold(d_x.view, 1, name());
    args.accumulate_x = d_x.accumulate;
    args.d_weight = d_weight.view;
    args.accumulate_weight = d_weight.accumulate;
    ctx.kernels->rms_norm_bwd(ctx, args);
  }
  void backward_input(const Context& ctx, BackwardScope& scope) override { run(ctx, scope, scope.input_grad(0), {}); }
  void backward_weight(const Context& ctx, BackwardScope& scope) override { run(ctx, scope, {}, scope.param_grad(0)); }
  void backward(const Context& ctx, BackwardScope& scope) override {
    run(ctx, scope, scope.input_grad(0), scope.param_grad(0));
  }
  void visit_saved(const SavedVisitor& visit) const override {
    visit("x", x);
    visit("rstd", rstd);
  }
};

struct LayerNormNode final : Node {
  Tensor x, mean, rstd;
  ParamRef weight, bias;

  const char* name() const override { return "layer_norm"; }
  void run(const Context& ctx, BackwardScope& scope, const GradTarget& d_x, const GradTarget& d_weight,
           const GradTarget& d_bias) const {
    if (!d_x && !d_weight && !d_bias) return;
    LayerNormBwdArgs args;
    args.x = fold(x, 1, name());
    args.weight = weight.value();
    args.mean = mean;
    args.rstd = rstd;
    args.d_out = fold(scope.output_grad(0), 1, name());
    if (d_x) args.d_x = fold(d_x.view, 1, name());
    args.accumulate_x = d_x.accumulate;
    args.d_weight = d_weight.view;
    args.d_bias = d_bias.view;
    args.accumulate_weight = d_weight ? d_weight.accumulate : d_bias.accumulate;
    // One flag serves both vectors: where they differ, the bias is summed on its own.
    const bool apart = d_weight && d_bias && d_weight.accumulate != d_bias.accumulate;
    if (apart) args.d_bias = {};
    ctx.kernels->layer_norm_bwd(ctx, args);
    if (apart) ctx.kernels->sum_rows(ctx, {args.d_out, d_bias.view, d_bias.accumulate});
  }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    run(ctx, scope, scope.input_grad(0), {}, {});
  }
  void backward_weight(const Context& ctx, BackwardScope& scope) override {
    run(ctx, scope, {}, scope.param_grad(0), scope.param_grad(1));
  }
  void backward(const Context& ctx, BackwardScope& scope) override {
    run(ctx, scope, scope.input_grad(0), scope.param_grad(0), scope.param_grad(1));
  }
  void visit_saved(const SavedVisitor& visit) const override {
    visit("x", x);
    visit("mean", mean);
    visit("rstd", rstd);
  }
};

// The number of rows of x, all axes but the last.
int64_t check_rows(const Tensor& x, const char* op) {
  check_float(x, op, "x");
  LOAM_CHECK(x.rank() >= 1 && x.dim(-1) > 0, "{}: x {} has no last axis to normalise", op, x.shape().str());
  return x.numel() / x.dim(-1);
}

}  // namespace

Var rms_norm(const Context& ctx, const Var& x, const ParamRef& weight, float eps) {
  const int64_t N = check_rows(x.value, "rms_norm");
  const Tensor w = weight.value();
  check_vector(w, x.value.dim(-1), "rms_norm", "weight");
  Var out(ctx.empty(x.shape(), x.dtype()));
  RmsNormNode node;
  if (differentiates(ctx, {&x}, {weight})) node.rstd = ctx.empty({N}, DType::f32);
  ctx.kernels->rms_norm_fwd(ctx, {fold(x.value, 1, "rms_norm"), w, eps, fold(out.value, 1, "rms_norm"), node.rstd});
  node.x = x.value;
  node.weight = weight;
  record(ctx, std::move(node), {x}, {&out}, {weight});
  return out;
}

Var layer_norm(const Context& ctx, const Var& x, const ParamRef& weight, const ParamRef& bias, float eps) {
  const int64_t N = check_rows(x.value, "layer_norm");
  const Tensor w = weight.value(), b = bias ? bias.value() : Tensor();
  check_vector(w, x.value.dim(-1), "layer_norm", "weight");
  if (bias) check_vector(b, x.value.dim(-1), "layer_norm", "bias");
  Var out(ctx.empty(x.shape(), x.dtype()));
  LayerNormNode node;
  if (differentiates(ctx, {&x}, {weight, bias})) {
    node.mean = ctx.empty({N}, DType::f32);
    node.rstd = ctx.empty({N}, DType::f32);
  }
  ctx.kernels->layer_norm_fwd(
      ctx, {fold(x.value, 1, "layer_norm"), w, b, eps, fold(out.value, 1, "layer_norm"), node.mean, node.rstd});
  node.x = x.value;
  node.weight = weight;
  node.bias = bias;
  record(ctx, std::move(node), {x}, {&out}, {weight, bias});
  return out;
}

}  // namespace loam::ops
