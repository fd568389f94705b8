#include "loam/ops/norm.h"

#include "loam/ops/op.h"

namespace loam::ops {
namespace {

// [C] f32: what multiplies.
Tensor factors(const ExecContext& ctx, const ParamRef& weight, int64_t C, NormWeight form) {
  if (weight && form == NormWeight::plain) return weight.value();
  const Tensor ones = ctx.empty({C}, DType::f32, MemoryKind::workspace);
  ctx.kernels->fill(ctx, {ones, 1.0f});
  if (weight) ctx.kernels->add(ctx, {weight.value(), ones, ones});
  return ones;
}

// Rows, or rows in groups that lie apart: heads of a slice of fused projections.
View rows_of(const View& view, const char* op) { return fold(view, view.rank() > 2 ? 2 : 1, op); }
View rows_of(const Tensor& t, const char* op) { return rows_of(t.view(), op); }

struct RmsNormNode final : Node {
  Tensor x, rstd;
  ParamRef weight;
  NormWeight form = NormWeight::plain;

  const char* name() const override { return "rms_norm"; }
  void run(const Context& ctx, BackwardScope& scope, const GradTarget& d_x, const GradTarget& d_weight) const {
    if (!d_x && !d_weight) return;
    RmsNormBwdArgs args;
    args.x = rows_of(x, name());
    const Tensor w = factors(ctx, weight, x.dim(-1), form);
    args.weight = w;
    args.rstd = rstd;
    args.d_out = rows_of(scope.output_grad(0), name());
    if (d_x) args.d_x = rows_of(d_x.view, name());
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
  NormWeight form = NormWeight::plain;

  const char* name() const override { return "layer_norm"; }
  void run(const Context& ctx, BackwardScope& scope, const GradTarget& d_x, const GradTarget& d_weight,
           const GradTarget& d_bias) const {
    if (!d_x && !d_weight && !d_bias) return;
    LayerNormBwdArgs args;
    args.x = rows_of(x, name());
    const Tensor w = factors(ctx, weight, x.dim(-1), form);
    args.weight = w;
    args.mean = mean;
    args.rstd = rstd;
    args.d_out = rows_of(scope.output_grad(0), name());
    if (d_x) args.d_x = rows_of(d_x.view, name());
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

Var rms_norm(const Context& ctx, const Var& x, const ParamRef& weight, float eps, NormWeight form) {
  const int64_t N = check_rows(x.value, "rms_norm");
  const Tensor w = factors(ctx, weight, x.value.dim(-1), form);
  check_vector(w, x.value.dim(-1), "rms_norm", "weight");
  Var out(ctx.empty(x.shape(), x.dtype()));
  RmsNormNode node;
  if (differentiates(ctx, {&x}, {weight})) node.rstd = ctx.empty({N}, DType::f32);
  ctx.kernels->rms_norm_fwd(ctx, {rows_of(x.value, "rms_norm"), w, eps, rows_of(out.value, "rms_norm"), node.rstd});
  node.x = x.value;
  node.weight = weight;
  node.form = form;
  record(ctx, std::move(node), {x}, {&out}, {weight});
  return out;
}

Var layer_norm(const Context& ctx, const Var& x, const ParamRef& weight, const ParamRef& bias, float eps,
               NormWeight form) {
  const int64_t N = check_rows(x.value, "layer_norm");
  const Tensor w = factors(ctx, weight, x.value.dim(-1), form), b = bias ? bias.value() : Tensor();
  check_vector(w, x.value.dim(-1), "layer_norm", "weight");
  if (bias) check_vector(b, x.value.dim(-1), "layer_norm", "bias");
  Var out(ctx.empty(x.shape(), x.dtype()));
  LayerNormNode node;
  if (differentiates(ctx, {&x}, {weight, bias})) {
    node.mean = ctx.empty({N}, DType::f32);
    node.rstd = ctx.empty({N}, DType::f32);
  }
  ctx.kernels->layer_norm_fwd(
      ctx, {rows_of(x.value, "layer_norm"), w, b, eps, rows_of(out.value, "layer_norm"), node.mean, node.rstd});
  node.x = x.value;
  node.weight = weight;
  node.form = form;
  node.bias = bias;
  record(ctx, std::move(node), {x}, {&out}, {weight, bias});
  return out;
}

}  // namespace loam::ops
