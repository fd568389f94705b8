#include <algorithm>

#include "loam/ops/head.h"
#include "loam/ops/linear_log_prob.h"
#include "loam/ops/op.h"

namespace loam::ops {
namespace {

struct CrossEntropyNode final : Node {
  Tensor d_hidden;  // absent if nobody wants it

  const char* name() const override { return "cross_entropy"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const Tensor d_loss = scope.output_grad(0);
    LOAM_CHECK(ctx.device.kind != DeviceKind::cpu || *d_loss.data<float>() == 1.0f,
               "cross_entropy: its loss reached the root with factor {}, not 1; use linear_log_prob for a loss that is "
               "scaled later",
               *d_loss.data<float>());
    if (d_hidden) scope.pass_input_grad(0, d_hidden);
  }
  void visit_saved(const SavedVisitor& visit) const override { visit("d_hidden", d_hidden); }
};

// The gradients of one chunk of rows, from that of its logits.
void chunk_gradients(const Context& ctx, const View& d_logits, const View& hidden, const ParamRef& weight,
                     const View& d_hidden) {
  const Tensor narrow = narrowed_logits(ctx, d_logits, hidden.dtype);
  MatmulArgs args;
  args.a = narrow ? narrow.view() : d_logits;
  if (d_hidden) {
    args.b = weight.value();
    args.c = d_hidden;
    ctx.kernels->matmul(ctx, args);
  }
  if (weight.trainable()) {
    const GradTarget d_weight = weight.source->grad_target(weight.index);
    args.transpose_a = true;
    args.b = hidden;
    args.c = d_weight.view;
    args.accumulate = d_weight.accumulate;
    ctx.kernels->matmul(ctx, args);
  }
}

}  // namespace

CrossEntropy cross_entropy(const Context& ctx, const Var& hidden, const ParamRef& weight, const Tensor& targets,
                           float scale) {
  const Head head = check_head("cross_entropy", hidden.value, weight, targets);
  const bool gradients = differentiates(ctx, {&hidden}, {weight}) && ctx.tape->keeps();
  CrossEntropyNode node;
  View d_hidden;
  if (gradients && ctx.tape->wants_grad(hidden)) {
    node.d_hidden = ctx.empty(hidden.shape(), hidden.dtype(), MemoryKind::gradients);
    d_hidden = fold(node.d_hidden, 1, "cross_entropy");
  }
  CrossEntropy out{Var(ctx.empty({1}, DType::f32)), ctx.empty({head.N}, DType::f32)};

  const int64_t rows = logits_rows(head.N, head.V);
  const Tensor logits = ctx.empty({rows, head.V}, DType::f32, MemoryKind::workspace);
  const Tensor lse = ctx.empty({head.N}, DType::f32, MemoryKind::workspace);
  for (int64_t begin = 0; begin < head.N; begin += rows) {
    const int64_t n = std::min(rows, head.N - begin);
    const View chunk = slice(logits, 0, n), inputs = slice(head.hidden, begin, n);
    MatmulArgs args;
    args.a = inputs;
    args.b = weight.value();
    args.transpose_b = true;
    args.c = chunk;
    ctx.kernels->matmul(ctx, args);
    ctx.kernels->cross_entropy_rows(ctx, {chunk, slice(head.targets, begin, n), scale, gradients,
                                          slice(out.losses, begin, n), slice(lse, begin, n)});
    if (gradients) chunk_gradients(ctx, chunk, inputs, weight, d_hidden ? slice(d_hidden, begin, n) : View());
  }
  sum_all(ctx, out.losses, out.loss.value);
  ctx.kernels->scale(ctx, {out.loss.value, scale, out.loss.value});
  record(ctx, std::move(node), {hidden}, {&out.loss}, {weight});
  return out;
}

}  // namespace loam::ops
