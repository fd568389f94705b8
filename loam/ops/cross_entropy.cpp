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
void chunk_gradients(const Context& ctx, const View& d_logits, const View& hidden, const LanguageHead& head,
                     const View& d_hidden) {
  const Tensor narrow = narrowed_logits(ctx, d_logits, hidden.dtype);
  MatmulArgs args;
  args.a = narrow ? narrow.view() : d_logits;
  args.alpha = head.scale;
  if (d_hidden) {
    args.b = head.weight.value();
    args.c = d_hidden;
    ctx.kernels->matmul(ctx, args);
  }
  if (head.bias && head.bias.trainable()) {
    const GradTarget d_bias = head.bias.source->grad_target(head.bias.index);
    ctx.kernels->sum_rows(ctx, {d_logits, d_bias.view, d_bias.accumulate});
  }
  if (head.weight.trainable()) {
    const GradTarget d_weight = head.weight.source->grad_target(head.weight.index);
    args.transpose_a = true;
    args.b = hidden;
    args.c = d_weight.view;
    args.accumulate = d_weight.accumulate;
    ctx.kernels->matmul(ctx, args);
  }
}

}  // namespace

CrossEntropy cross_entropy(const Context& ctx, const Var& hidden, const LanguageHead& head, const Tensor& targets,
                           float scale, float z_loss) {
  const ModuleScope module(ctx, "head");
  const HeadInputs in = check_head("cross_entropy", hidden.value, head, targets);
  const bool gradients = differentiates(ctx, {&hidden}, {head.weight, head.bias}) && ctx.tape->keeps();
  CrossEntropyNode node;
  View d_hidden;
  if (gradients && ctx.tape->wants_grad(hidden)) {
    node.d_hidden = ctx.empty(hidden.shape(), hidden.dtype(), MemoryKind::gradients);
    d_hidden = fold(node.d_hidden, 1, "cross_entropy");
  }
  CrossEntropy out{Var(ctx.empty({1}, DType::f32)), ctx.empty({in.N}, DType::f32)};

  // A GPU is waiting for memory here: it keeps logits, and their gradient, as the matrix products give and take them,
  // and its tensor cores want rows that begin at multiples of 16 bytes, whatever V is.
  const bool gpu = ctx.device.kind == DeviceKind::cuda;
  const int64_t rows = logits_rows(in.N, in.V, gpu ? kLogitsBytesOfGpu : kLogitsBytes);
  const int64_t width = gpu ? (in.V + 63) / 64 * 64 : in.V;
  const Tensor logits =
      ctx.empty({rows, width}, gpu ? hidden.dtype() : DType::f32, MemoryKind::workspace).narrow(1, 0, in.V);
  const Tensor z_terms = z_loss > 0 ? ctx.empty({in.N}, DType::f32, MemoryKind::workspace) : Tensor();
  for (int64_t begin = 0; begin < in.N; begin += rows) {
    const int64_t n = std::min(rows, in.N - begin);
    const View chunk = slice(logits, 0, n), inputs = slice(in.hidden, begin, n);
    make_logits(ctx, head, inputs, 0, chunk);
    ctx.kernels->cross_entropy_rows(ctx, {chunk, slice(in.targets, begin, n), scale, gradients, z_loss, head.softcap,
                                          slice(out.losses, begin, n), z_loss > 0 ? slice(z_terms, begin, n) : View()});
    if (gradients) chunk_gradients(ctx, chunk, inputs, head, d_hidden ? slice(d_hidden, begin, n) : View());
  }
  sum_all(ctx, out.losses, out.loss.value);
  if (z_loss > 0) {
    const Tensor sum = ctx.empty({1}, DType::f32, MemoryKind::workspace);
    sum_all(ctx, z_terms, sum);
    ctx.kernels->add(ctx, {out.loss.value, sum, out.loss.value});
  }
  ctx.kernels->scale(ctx, {out.loss.value, scale, out.loss.value});
  record(ctx, std::move(node), {hidden}, {&out.loss}, {head.weight, head.bias});
  return out;
}

}  // namespace loam::ops
