#include "loam/ops/activation.h"

#include <gtest/gtest.h>

#include "tests/harness/expect_error.h"
#include "tests/harness/op_harness.h"
#include "tests/ops/references.h"

namespace loam::testing {
namespace {

constexpr Activation kKinds[] = {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu,
                                 Activation::relu_squared};

OpCase activation_case(const Shape& shape, Activation kind) {
  OpCase c;
  c.name = fmt::format("activation {} {}", static_cast<int>(kind), shape.str());
  c.inputs = {{shape, 2}};
  c.c = 8;  // near its zeros a derivative is a difference of two larger terms
  c.row_wise = true;
  c.op = [kind](const Context& ctx, std::span<const Var> x, std::span<const ParamRef>) {
    return std::vector<Var>{ops::activation(ctx, x[0], kind)};
  };
  c.reference = [kind](std::span<const Values> x, std::span<const Values>) {
    Values y = x[0];
    for (double& v : y) v = activation_reference(kind, v);
    return std::vector<Values>{y};
  };
  return c;
}

OpCase gated_case(const Shape& shape, Activation kind) {
  OpCase c = activation_case(shape, kind);
  const auto F = static_cast<size_t>(shape[-1] / 2);
  c.name = "gated " + c.name;
  c.op = [kind](const Context& ctx, std::span<const Var> x, std::span<const ParamRef>) {
    return std::vector<Var>{ops::gated(ctx, x[0], kind)};
  };
  c.reference = [kind, F](std::span<const Values> x, std::span<const Values>) {
    Values y;
    for (size_t row = 0; row < x[0].size(); row += 2 * F) {
      for (size_t f = 0; f < F; ++f) y.push_back(activation_reference(kind, x[0][row + f]) * x[0][row + F + f]);
    }
    return std::vector<Values>{y};
  };
  return c;
}

TEST(Activation, MatchesReference) {
  for (Activation kind : kKinds) {
    for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 3, 17}}) check_op(activation_case(shape, kind));
  }
  bench_op(activation_case({1024, 3072}, Activation::gelu));
}

TEST(Gated, MatchesReference) {
  for (Activation kind : kKinds) {
    for (const Shape& shape : {Shape{1, 2}, Shape{3, 14}, Shape{2, 3, 34}}) check_op(gated_case(shape, kind));
  }
  bench_op(gated_case({1024, 4096}, Activation::silu));
}

// Far out the functions are 0 or x, without overflow on the way.
TEST(Activation, FarOut) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  const Values x = {-1e30, -1e4, -100, 100, 1e4, 1e30}, want = {0, 0, 0, 100, 1e4, static_cast<float>(1e30)};
  for (Activation kind : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    const Values y = values_of(ops::activation(ctx, Var(tensor_of(ctx, {6}, DType::f32, x)), kind).value);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], want[i], 1e-30 + 1e-6 * std::abs(want[i])) << i;
  }
}

TEST(Gated, ErrorNamesTheShape) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument,
                     [&] {
                       ops::gated(ctx, Var(ctx.empty({2, 3}, DType::f32)), Activation::silu);
                     }),
            "gated: the last axis of x [2, 3] is not a gate and a value of equal size");
}

}  // namespace
}  // namespace loam::testing
