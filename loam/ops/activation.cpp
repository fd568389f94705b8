#include "loam/ops/activation.h"

#include "loam/ops/op.h"

namespace loam::ops {
namespace {

struct ActivationNode final : Node {
  Activation kind;
  Tensor x;

  const char* name() const override { return "activation"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const GradTarget d_x = scope.input_grad(0);
    ctx.kernels->activation_bwd(ctx, {kind, fold(x, 1, name()), fold(scope.output_grad(0), 1, name()),
                                      fold(d_x.view, 1, name()), d_x.accumulate});
  }
  void visit_saved(const SavedVisitor& visit) const override { visit("x", x); }
};

struct GatedNode final : Node {
  Activation kind;
  Tensor x;

  const char* name() const override { return "gated"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const GradTarget d_x = scope.input_grad(0);
    ctx.kernels->gated_bwd(ctx, {kind, fold(x, 1, name()), fold(scope.output_grad(0), 1, name()),
                                 fold(d_x.view, 1, name()), d_x.accumulate});
  }
  void visit_saved(const SavedVisitor& visit) const override { visit("x", x); }
};

}  // namespace

Var activation(const Context& ctx, const Var& x, Activation kind) {
  check_float(x.value, "activation", "x");
  LOAM_CHECK(x.value.rank() >= 1, "activation: x has no axes");
  Var out(ctx.empty(x.shape(), x.dtype()));
  ctx.kernels->activation_fwd(ctx, {kind, fold(x.value, 1, "activation"), fold(out.value, 1, "activation")});
  ActivationNode node;
  node.kind = kind;
  node.x = x.value;
  record(ctx, std::move(node), {x}, {&out});
  return out;
}

Var gated(const Context& ctx, const Var& x, Activation kind) {
  check_float(x.value, "gated", "x");
  LOAM_CHECK(x.value.rank() >= 1 && x.value.dim(-1) % 2 == 0,
             "gated: the last axis of x {} is not a gate and a value of equal size", x.shape().str());
  Var out(ctx.empty(with_last(x.shape(), x.value.dim(-1) / 2), x.dtype()));
  ctx.kernels->gated_fwd(ctx, {kind, fold(x.value, 1, "gated"), fold(out.value, 1, "gated")});
  GatedNode node;
  node.kind = kind;
  node.x = x.value;
  record(ctx, std::move(node), {x}, {&out});
  return out;
}

}  // namespace loam::ops
