#include "loam/ops/linear.h"

#include <gtest/gtest.h>

#include "loam/ops/activation.h"
#include "loam/ops/linear_log_prob.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/test_params.h"
#include "tests/ops/references.h"

namespace loam::testing {
namespace {

OpCase linear_case(const Shape& leading, int64_t in, int64_t out, bool bias) {
  OpCase c;
  Shape shape = leading;
  shape.push_back(in);
  c.name = fmt::format("linear {} -> {}{}", shape.str(), out, bias ? " + bias" : "");
  c.inputs = {{shape}};
  c.params = {{{out, in}}};
  if (bias) c.params.push_back({{out}});
  c.row_wise = true;
  c.op = [](const Context& ctx, std::span<const Var> in_vars, std::span<const ParamRef> p) {
    return std::vector<Var>{ops::linear(ctx, in_vars[0], p[0], p.size() > 1 ? p[1] : ParamRef{})};
  };
  c.reference = [in](std::span<const Values> x, std::span<const Values> p) {
    return std::vector<Values>{linear_reference(x[0], p[0], p.size() > 1 ? p[1] : Values{}, in)};
  };
  return c;
}

TEST(Linear, MatchesReference) {
  for (bool bias : {false, true}) {
    check_op(linear_case({1}, 1, 1, bias));
    check_op(linear_case({3}, 5, 7, bias));
    check_op(linear_case({2, 3}, 8, 16, bias));
    check_op(linear_case({17}, 33, 9, bias));
  }
  bench_op(linear_case({1024}, 768, 768, false));
}

// The head's logits are f32 whatever the weight is, also from a slice; the product is not rounded to it.
TEST(Logits, MatchReferenceInF32) {
  constexpr int64_t N = 3, C = 17, V = 29;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const ExecResources resources = guarded_resources();
    {
      Tape tape;
      const Context ctx(resources.context, &tape);
      TestParams params(ctx);
      const Tensor w = tensor_of(ctx, {V, C}, dtype, random_values(V * C, 1));
      const Tensor x = tensor_of(ctx, {N, C + 4}, dtype, random_values(N * (C + 4), 2)).narrow(1, 2, C);
      const Tensor y = ops::logits(ctx, x, params.add(w));
      EXPECT_EQ(y.dtype(), DType::f32);
      EXPECT_EQ(tape.size(), 0);
      EXPECT_LT(relative_error(values_of(y), linear_reference(values_of(x), values_of(w), {}, C)),
                4 * dtype_eps(DType::f32));
    }
    EXPECT_EQ(resources.arena->broken_guards(), 0);
  }
}

TEST(Linear, ErrorNamesTheShapes) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  TestParams params(ctx);
  const ParamRef w = params.add(ctx.empty({4, 5}, DType::f32)), b = params.add(ctx.empty({3}, DType::f32));
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument,
                     [&] {
                       ops::linear(ctx, Var(ctx.empty({2, 3}, DType::f32)), w);
                     }),
            "linear: x f32 [2, 3] and weight f32 [4, 5] do not fit");
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument,
                     [&] {
                       ops::linear(ctx, Var(ctx.empty({2, 5}, DType::f32)), w, b);
                     }),
            "linear: bias is f32 [3], not f32 [4]");
}

TEST(Linear, FrozenWeightSavesNothingAndPassesTheGradientOn) {
  const ExecResources resources = guarded_resources();
  {
    Tape tape;
    const Context ctx(resources.context, &tape);
    TestParams params(ctx);
    const Values w = random_values(15, 1);
    const ParamRef weight = params.add(tensor_of(ctx, {3, 5}, DType::f32, w), false);
    const Var x = tape.leaf(tensor_of(ctx, {2, 5}, DType::f32, random_values(10, 2)));
    const Var y = ops::linear(ctx, x, weight);
    EXPECT_EQ(tape.saved_bytes(), 0);
    const Tensor d_y = tensor_of(ctx, {2, 3}, DType::f32, Values(6, 1.0));
    tape.backward(ctx, std::span(&y, 1), std::span(&d_y, 1), {});
    EXPECT_FALSE(params.gradient(weight));
    Values want;
    for (size_t n = 0; n < 2; ++n) {
      for (size_t i = 0; i < 5; ++i) want.push_back(w[i] + w[5 + i] + w[10 + i]);
    }
    EXPECT_LT(relative_error(values_of(tape.grad(x)), want), 4 * dtype_eps(DType::f32));
  }
}

TEST(Mlp, TwoLayersMatchReference) {
  constexpr int64_t C = 6, F = 10;
  OpCase c;
  c.name = "mlp";
  c.inputs = {{{5, C}}};
  c.params = {{{2 * F, C}}, {{2 * F}}, {{C, F}}, {{C}}};
  c.row_wise = true;
  c.c = 8;  // three roundings to the dtype on the way
  c.op = [](const Context& ctx, std::span<const Var> x, std::span<const ParamRef> p) {
    const Var hidden = ops::gated(ctx, ops::linear(ctx, x[0], p[0], p[1]), Activation::silu);
    return std::vector<Var>{ops::linear(ctx, hidden, p[2], p[3])};
  };
  c.reference = [](std::span<const Values> x, std::span<const Values> p) {
    const Values up = linear_reference(x[0], p[0], p[1], C);
    Values hidden;
    for (size_t row = 0; row < up.size(); row += 2 * F) {
      for (size_t f = 0; f < F; ++f) {
        hidden.push_back(activation_reference(Activation::silu, up[row + f]) * up[row + F + f]);
      }
    }
    return std::vector<Values>{linear_reference(hidden, p[2], p[3], F)};
  };
  check_op(c);
}

}  // namespace
}  // namespace loam::testing
