#include "loam/ops/linear_log_prob.h"

#include <algorithm>

#include "loam/ops/head.h"
#include "loam/ops/op.h"

namespace loam::ops {
namespace {

// The head's matrix.
Tensor check_logits(const char* op, const Tensor& hidden, const LanguageHead& head) {
  check_float(hidden, op, "hidden");
  const Tensor w = head.weight.value();
  LOAM_CHECK(w.rank() == 2 && hidden.rank() >= 1 && hidden.dim(-1) == w.dim(1) && hidden.dtype() == w.dtype(),
             "{}: hidden {} {} and weight {} {} do not fit", op, dtype_name(hidden.dtype()), hidden.shape().str(),
             dtype_name(w.dtype()), w.shape().str());
  if (head.bias) check_vector(head.bias.value(), w.dim(0), op, "bias");
  return w;
}

}  // namespace

HeadInputs check_head(const char* op, const Tensor& hidden, const LanguageHead& head, const Tensor& targets) {
  const Tensor w = check_logits(op, hidden, head);
  const View rows = fold(hidden, 1, op);
  const int64_t N = rows.dim(0), V = w.dim(0);
  LOAM_CHECK(targets && targets.dtype() == DType::i32 && targets.numel() == N && targets.is_contiguous(),
             "{}: hidden {} needs {} contiguous targets in i32, got {}", op, hidden.shape().str(), N,
             targets.shape().str());
  if (targets.device().kind == DeviceKind::cpu) {  // as ids in embedding
    for (int32_t target : targets.span<int32_t>()) {
      LOAM_CHECK(target >= -1 && target < V, "{}: target {} is outside [-1, {})", op, target, V);
    }
  }
  return {N, w.dim(1), V, rows, targets.reshape({N})};
}

void make_logits(const ExecContext& ctx, const LanguageHead& head, const View& hidden, int64_t begin, const View& out) {
  MatmulArgs args;
  args.a = hidden;
  args.b = slice(head.weight.value(), begin, out.dim(1));
  args.transpose_b = true;
  args.c = out;
  args.alpha = head.scale;
  if (head.bias) args.bias = slice(head.bias.value(), begin, out.dim(1));
  ctx.kernels->matmul(ctx, args);
  if (head.softcap > 0) ctx.kernels->softcap(ctx, {out, head.softcap});
}

Tensor logits(const Context& ctx, const Tensor& hidden, const LanguageHead& head) {
  const Tensor w = check_logits("logits", hidden, head);
  const Tensor out = ctx.empty(with_last(hidden.shape(), w.dim(0)), DType::f32);
  make_logits(ctx, head, fold(hidden, 1, "logits"), 0, fold(out, 1, "logits"));
  return out;
}

Tensor narrowed_logits(const ExecContext& ctx, const View& d_logits, DType dtype) {
  if (d_logits.dtype == dtype) return {};
  Tensor out = ctx.empty(d_logits.shape, dtype, MemoryKind::workspace);
  ctx.kernels->copy(ctx, {d_logits, out});
  return out;
}

namespace {

// Logits are made in tiles of at most this size, which depends on nothing, so that a row's result does not depend on
// the rows beside it.
constexpr int64_t kTileColumns = 8192;
constexpr int64_t kTileRows = kLogitsBytes / 4 / kTileColumns;

struct Tile {
  int64_t row, rows, column, columns;
};

// Calls body(tile, logits) for each tile, all columns of a row first.
template <class Body>
void each_tile(const ExecContext& ctx, const LanguageHead& head, const HeadInputs& in, const Body& body) {
  const int64_t most_rows = std::min(kTileRows, in.N), most_columns = std::min(kTileColumns, in.V);
  const Tensor buffer = ctx.empty({most_rows * most_columns}, DType::f32, MemoryKind::workspace);
  for (int64_t row = 0; row < in.N; row += kTileRows) {
    for (int64_t column = 0; column < in.V; column += kTileColumns) {
      const Tile t{row, std::min(kTileRows, in.N - row), column, std::min(kTileColumns, in.V - column)};
      const Tensor logits = buffer.narrow(0, 0, t.rows * t.columns).reshape({t.rows, t.columns});
      make_logits(ctx, head, slice(in.hidden, t.row, t.rows), t.column, logits);
      body(t, logits.view());
    }
  }
}

struct LinearLogProbNode final : Node {
  Tensor hidden, targets, lse;
  LanguageHead head{{}};

  const char* name() const override { return "linear_log_prob"; }
  void run(const Context& ctx, BackwardScope& scope, const GradTarget& d_hidden, const GradTarget& d_weight,
           const GradTarget& d_bias) const {
    if (!d_hidden && !d_weight && !d_bias) return;
    const Tensor w = head.weight.value();
    const View inputs = fold(hidden, 1, name());
    const HeadInputs in{inputs.dim(0), w.dim(1), w.dim(0), inputs, targets};
    Tensor d_logp = scope.output_grad(0);
    const Tensor d_lse = scope.output_grad(1);
    if (!d_logp) {
      d_logp = ctx.empty({in.N}, DType::f32, MemoryKind::workspace);
      ctx.kernels->fill(ctx, {d_logp, 0.0f});
    }
    // The gradient of hidden is summed over the vocabulary in f32.
    const bool direct = d_hidden && d_hidden.view.dtype == DType::f32;
    Tensor sums;
    if (d_hidden && !direct) sums = ctx.empty({std::min(kTileRows, in.N), in.C}, DType::f32, MemoryKind::workspace);

    each_tile(ctx, head, in, [&](const Tile& t, const View& logits) {
      ctx.kernels->logit_bwd(
          ctx, {logits, t.column, slice(targets, t.row, t.rows), slice(lse, t.row, t.rows),
                slice(d_logp, t.row, t.rows), d_lse ? slice(d_lse, t.row, t.rows) : View(), head.softcap});
      const Tensor narrow = narrowed_logits(ctx, logits, w.dtype());
      MatmulArgs args;
      args.a = narrow ? narrow.view() : logits;
      args.alpha = head.scale;
      if (d_hidden) {
        const View whole = fold(d_hidden.view, 1, name());
        args.b = slice(w, t.column, t.columns);
        args.c = direct ? slice(whole, t.row, t.rows) : slice(sums, 0, t.rows);
        args.accumulate = t.column > 0 || (direct && d_hidden.accumulate);
        ctx.kernels->matmul(ctx, args);
        if (!direct && t.column + t.columns == in.V) {
          ctx.kernels->copy(ctx, {args.c, slice(whole, t.row, t.rows), d_hidden.accumulate});
        }
      }
      if (d_weight) {
        args.transpose_a = true;
        args.b = slice(inputs, t.row, t.rows);
        args.c = slice(d_weight.view, t.column, t.columns);
        args.accumulate = t.row > 0 || d_weight.accumulate;
        ctx.kernels->matmul(ctx, args);
      }
      if (d_bias) {
        ctx.kernels->sum_rows(ctx, {logits, slice(d_bias.view, t.column, t.columns), t.row > 0 || d_bias.accumulate});
      }
    });
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
    visit("hidden", hidden);
    visit("targets", targets);
    visit("lse", lse);
  }
};

}  // namespace

LogProb linear_log_prob(const Context& ctx, const Var& hidden, const LanguageHead& head, const Tensor& targets,
                        bool want_entropy) {
  const HeadInputs in = check_head("linear_log_prob", hidden.value, head, targets);
  auto row_values = [&](MemoryKind kind) { return ctx.empty({in.N}, DType::f32, kind); };
  LogProb out{Var(row_values(MemoryKind::activations)), Var(row_values(MemoryKind::activations)), {}};
  const Tensor max = row_values(MemoryKind::workspace), sum = row_values(MemoryKind::workspace),
               target_logit = row_values(MemoryKind::workspace);
  Tensor dot;
  if (want_entropy) {
    dot = row_values(MemoryKind::workspace);
    out.entropy = row_values(MemoryKind::activations);
  }
  ctx.kernels->fill(ctx, {target_logit, 0.0f});

  each_tile(ctx, head, in, [&](const Tile& t, const View& logits) {
    auto rows = [&](const Tensor& values) { return slice(values, t.row, t.rows); };
    ctx.kernels->logit_stats(ctx, {logits, t.column, slice(in.targets, t.row, t.rows), t.column == 0, rows(max),
                                   rows(sum), rows(target_logit), want_entropy ? rows(dot) : View()});
  });
  ctx.kernels->log_prob(ctx, {max, sum, target_logit, dot, in.targets, out.logp.value, out.lse.value, out.entropy});

  LinearLogProbNode node;
  node.hidden = hidden.value;
  node.targets = targets.reshape({in.N});
  node.lse = out.lse.value;
  node.head = head;
  record(ctx, std::move(node), {hidden}, {&out.logp, &out.lse}, {head.weight, head.bias});
  return out;
}

}  // namespace loam::ops
