#include "loam/ops/norm.h"

#include <gtest/gtest.h>

#include "loam/ops/basic.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/test_params.h"
#include "tests/ops/references.h"

namespace loam::testing {
namespace {

OpCase norm_case(const Shape& shape, bool centred, bool bias) {
  constexpr float kEps = 1e-3f;
  OpCase c;
  c.name = fmt::format("{} {}{}", centred ? "layer_norm" : "rms_norm", shape.str(), bias ? " + bias" : "");
  c.inputs = {{shape, 2, 0.5}};
  c.params = {{{shape[-1]}, 0.5, 1}};
  if (bias) c.params.push_back({{shape[-1]}});
  c.row_wise = true;
  c.op = [=](const Context& ctx, std::span<const Var> x, std::span<const ParamRef> p) {
    return std::vector<Var>{centred ? ops::layer_norm(ctx, x[0], p[0], bias ? p[1] : ParamRef{}, kEps)
                                    : ops::rms_norm(ctx, x[0], p[0], kEps)};
  };
  c.reference = [=](std::span<const Values> x, std::span<const Values> p) {
    return std::vector<Values>{norm_reference(x[0], p[0], bias ? p[1] : Values{}, kEps, centred)};
  };
  return c;
}

TEST(RmsNorm, MatchesReference) {
  for (const Shape& shape : {Shape{1, 3}, Shape{5, 7}, Shape{2, 3, 16}, Shape{67, 33}})
    check_op(norm_case(shape, false, false));
  bench_op(norm_case({1024, 768}, false, false));
}

// The scale as 1 + weight, or none at all.
OpCase scaled_case(bool centred, bool weighted) {
  constexpr float kEps = 1e-3f;
  OpCase c = norm_case({5, 7}, centred, false);
  c.name += weighted ? " 1 + weight" : " without weight";
  if (!weighted) c.params.clear();
  c.op = [=](const Context& ctx, std::span<const Var> x, std::span<const ParamRef> p) {
    const ParamRef weight = weighted ? p[0] : ParamRef{};
    const auto form = weighted ? ops::NormWeight::one_plus : ops::NormWeight::plain;
    return std::vector<Var>{centred ? ops::layer_norm(ctx, x[0], weight, {}, kEps, form)
                                    : ops::rms_norm(ctx, x[0], weight, kEps, form)};
  };
  c.reference = [=](std::span<const Values> x, std::span<const Values> p) {
    Values scale(7, 1.0);
    for (size_t i = 0; weighted && i < scale.size(); ++i) scale[i] += p[0][i];
    return std::vector<Values>{norm_reference(x[0], scale, {}, kEps, centred)};
  };
  return c;
}

TEST(Norm, ScalesByOnePlusWeightOrNothing) {
  for (bool centred : {false, true}) {
    check_op(scaled_case(centred, true));
    check_op(scaled_case(centred, false));
  }
}

// Each head of a slice of fused projections: rows in groups that lie apart.
OpCase heads_case(bool centred) {
  constexpr float kEps = 1e-3f;
  constexpr int64_t B = 2, T = 3, H = 2, D = 8, kBefore = 5, kAfter = 4;
  OpCase c;
  c.name = centred ? "layer_norm of heads" : "rms_norm of heads";
  c.inputs = {{{B, T, kBefore + H * D + kAfter}, 2, 0.5}};
  c.params = {{{D}, 0.5, 1}};
  c.op = [=](const Context& ctx, std::span<const Var> x, std::span<const ParamRef> p) {
    const Var heads = ops::reshape(ctx, ops::split(ctx, x[0], {kBefore, H * D, kAfter})[1], {B, T, H, D});
    return std::vector<Var>{centred ? ops::layer_norm(ctx, heads, p[0], {}, kEps)
                                    : ops::rms_norm(ctx, heads, p[0], kEps)};
  };
  c.reference = [=](std::span<const Values> x, std::span<const Values> p) {
    Values heads;
    constexpr int64_t width = kBefore + H * D + kAfter;
    for (int64_t row = 0; row < B * T; ++row) {
      const auto begin = x[0].begin() + row * width + kBefore;
      heads.insert(heads.end(), begin, begin + H * D);
    }
    return std::vector<Values>{norm_reference(heads, p[0], {}, kEps, centred)};
  };
  return c;
}

TEST(Norm, NormalisesHeadsOfASlice) {
  check_op(heads_case(false));
  check_op(heads_case(true));
}

TEST(LayerNorm, MatchesReference) {
  for (const Shape& shape : {Shape{1, 3}, Shape{5, 7}, Shape{2, 3, 16}, Shape{67, 33}}) {
    check_op(norm_case(shape, true, false));
    check_op(norm_case(shape, true, true));
  }
  bench_op(norm_case({1024, 768}, true, true));
}

// A constant row has variance 0: the result is the bias.
TEST(LayerNorm, ConstantRow) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  TestParams params(ctx);
  const Values bias = random_values(5, 3);
  const ParamRef w = params.add(tensor_of(ctx, {5}, DType::f32, Values(5, 2.0)));
  const ParamRef b = params.add(tensor_of(ctx, {5}, DType::f32, bias));
  const Var y = ops::layer_norm(ctx, Var(tensor_of(ctx, {1, 5}, DType::f32, Values(5, 3.0))), w, b, 1e-5f);
  EXPECT_LT(relative_error(values_of(y.value), bias), dtype_eps(DType::f32));
}

// A tied bias that already holds a gradient while the weight's is fresh: each keeps its own flag.
TEST(LayerNorm, WeightAndBiasAccumulateApart) {
  const ExecResources resources = guarded_resources();
  {
    TestParams params(resources.context);
    Tape tape;
    const Context ctx(resources.context, &tape);
    const ParamRef w1 = params.add(tensor_of(ctx, {4}, DType::f32, Values(4, 1.0)));
    const ParamRef w2 = params.add(tensor_of(ctx, {4}, DType::f32, Values(4, 1.0)));
    const ParamRef b = params.add(tensor_of(ctx, {4}, DType::f32, Values(4, 0.0)));
    const Var x(tensor_of(ctx, {3, 4}, DType::f32, random_values(12, 5)));
    const Var roots[] = {ops::layer_norm(ctx, x, w1, b, 1e-5f), ops::layer_norm(ctx, x, w2, b, 1e-5f)};
    const Tensor d = tensor_of(ctx, {3, 4}, DType::f32, Values(12, 1.0));
    const Tensor gradients[] = {d, d};
    tape.backward(ctx, roots, gradients, {});
    EXPECT_EQ(values_of(params.gradient(b)), Values(4, 6.0));
    EXPECT_EQ(values_of(params.gradient(w1)), values_of(params.gradient(w2)));
  }
}

TEST(Norm, ErrorNamesTheShapes) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  TestParams params(ctx);
  const ParamRef w = params.add(ctx.empty({4}, DType::f32));
  const Var x(ctx.empty({2, 3}, DType::f32));
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { ops::rms_norm(ctx, x, w, 1e-5f); }),
            "rms_norm: weight is f32 [4], not f32 [3]");
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { ops::layer_norm(ctx, x, w, {}, 1e-5f); }),
            "layer_norm: weight is f32 [4], not f32 [3]");
}

}  // namespace
}  // namespace loam::testing
