#include "loam/ops/attention.h"

#include <cmath>

#include "loam/ops/op.h"

namespace loam::ops {
namespace {

struct RopeNode final : Node {
  Tensor positions;
  Rotation rotation;
  RopeLayout layout;

  const char* name() const override { return "rope"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const GradTarget d_x = scope.input_grad(0);
    ctx.kernels->rope(ctx, {fold(scope.output_grad(0), 2, name()), positions, rotation.frequency, layout, true,
                            fold(d_x.view, 2, name()), d_x.accumulate, rotation.factor});
  }
  void visit_saved(const SavedVisitor& visit) const override {
    visit("positions", positions);
    visit("frequency", rotation.frequency);
  }
};

AttentionMask mask_of(const AttentionOptions& o) { return {o.causal, o.window, o.first_key, o.key_count}; }
AttentionLogits logits_of(const AttentionOptions& o) { return {o.scale, o.softcap, o.slopes}; }

struct AttentionNode final : Node {
  Tensor q, k, v, out, lse;
  AttentionOptions options;

  const char* name() const override { return "attention"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    Tensor unwanted[3];
    auto target = [&](int input, const Tensor& like) {
      GradTarget to = scope.input_grad(input);
      if (!to) to.view = unwanted[input] = ctx.empty(like.shape(), like.dtype(), MemoryKind::workspace);
      return to;
    };
    const GradTarget d_q = target(0, q), d_k = target(1, k), d_v = target(2, v);
    AttentionBwdArgs args;
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;
    args.lse = lse;
    args.d_out = scope.output_grad(0);
    args.mask = mask_of(options);
    args.logits = logits_of(options);
    args.dropout = options.dropout;
    args.d_q = d_q.view;
    args.d_k = d_k.view;
    args.d_v = d_v.view;
    args.accumulate_q = d_q.accumulate;
    args.accumulate_k = d_k.accumulate;
    args.accumulate_v = d_v.accumulate;
    ctx.kernels->attention_bwd(ctx, args);
  }
  void visit_saved(const SavedVisitor& visit) const override {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("out", out);
    visit("lse", lse);
    visit("first_key", options.first_key);
    visit("key_count", options.key_count);
    visit("slopes", options.slopes);
  }
};

void check_attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  check_float(q.value, "attention", "q");
  const auto [B, T, H, D] = q.value.dims<4>();
  const auto [Bk, S, K, Dk] = k.value.dims<4>();
  LOAM_CHECK(B == Bk && D == Dk && k.shape() == v.shape() && q.dtype() == k.dtype() && q.dtype() == v.dtype(),
             "attention: q {} {}, k {} {} and v {} {} do not fit", dtype_name(q.dtype()), q.shape().str(),
             dtype_name(k.dtype()), k.shape().str(), dtype_name(v.dtype()), v.shape().str());
  LOAM_CHECK(K > 0 && H % K == 0, "attention: {} query heads are not a multiple of {} key heads", H, K);
  LOAM_CHECK(D % 8 == 0 && D > 0 && D <= 256, "attention: head dim {} is not a multiple of 8 up to 256", D);
  auto check_bounds = [](const Tensor& t, const Shape& shape, const char* what) {
    LOAM_CHECK(!t || (t.dtype() == DType::i32 && t.shape() == shape), "attention: {} is {} {}, not i32 {}", what,
               dtype_name(t.dtype()), t.shape().str(), shape.str());
  };
  check_bounds(options.first_key, {B, T}, "first_key");
  check_bounds(options.key_count, {B}, "key_count");
  LOAM_CHECK(options.window >= 0 && (options.window == 0 || options.causal), "attention: a window of {} keys{}",
             options.window, options.causal ? "" : " without causal order");
  if (options.slopes) check_vector(options.slopes, H, "attention", "slopes");
}

}  // namespace

Var rope(const Context& ctx, const Var& x, const Tensor& positions, const Rotation& rotation, RopeLayout layout) {
  check_float(x.value, "rope", "x");
  LOAM_CHECK(x.value.rank() >= 3, "rope: x {} is not [..., H, D]", x.shape().str());
  const int64_t D = x.value.dim(-1), N = x.value.numel() / std::max<int64_t>(1, x.value.dim(-2) * D);
  LOAM_CHECK(positions && positions.dtype() == DType::i32 && positions.numel() == N && positions.is_contiguous(),
             "rope: x {} needs {} positions in i32, got {}", x.shape().str(), N, positions.shape().str());
  const Tensor& frequency = rotation.frequency;
  check_vector(frequency, frequency.numel(), "rope", "frequency");
  LOAM_CHECK(2 * frequency.numel() <= D, "rope: {} frequencies for heads of {}", frequency.numel(), D);
  Var out(ctx.empty(x.shape(), x.dtype()));
  RopeNode node;
  node.positions = positions.reshape({N});
  node.rotation = rotation;
  node.layout = layout;
  ctx.kernels->rope(ctx, {fold(x.value, 2, "rope"), node.positions, frequency, layout, false,
                          fold(out.value, 2, "rope"), false, rotation.factor});
  record(ctx, std::move(node), {x}, {&out});
  return out;
}

Var attention(const Context& ctx, const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  check_attention(q, k, v, options);
  const auto [B, T, H, D] = q.value.dims<4>();
  Var out(ctx.empty(q.shape(), q.dtype()));
  AttentionNode node;
  node.options = options;
  if (!ctx.tape) node.options.dropout = {};
  node.options.max_logit = {};
  if (options.scale == 0) node.options.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(D)));
  if (differentiates(ctx, {&q, &k, &v})) node.lse = ctx.empty({B, H, T}, DType::f32);
  AttentionFwdArgs args;
  args.q = q.value;
  args.k = k.value;
  args.v = v.value;
  args.mask = mask_of(node.options);
  args.logits = logits_of(node.options);
  args.dropout = node.options.dropout;
  args.max_logit = options.max_logit;
  args.out = out.value;
  args.lse = node.lse;
  ctx.kernels->attention_fwd(ctx, args);
  node.q = q.value;
  node.k = k.value;
  node.v = v.value;
  node.out = out.value;
  record(ctx, std::move(node), {q, k, v}, {&out});
  return out;
}

}  // namespace loam::ops
