#include "loam/ops/basic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/harness/expect_error.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/test_params.h"

namespace loam::testing {
namespace {

OpCase one_input(const std::string& name, const Shape& shape, const std::function<Var(const Context&, const Var&)>& op,
                 const std::function<Values(const Values&)>& reference) {
  OpCase c;
  c.name = name + " " + shape.str();
  c.inputs = {{shape}};
  c.op = [op](const Context& ctx, std::span<const Var> in, std::span<const ParamRef>) {
    return std::vector<Var>{op(ctx, in[0])};
  };
  c.reference = [reference](std::span<const Values> in, std::span<const Values>) {
    return std::vector<Values>{reference(in[0])};
  };
  return c;
}

const Shape kShapes[] = {{1}, {7}, {3, 5}, {2, 3, 33}, {129, 17}};

TEST(Add, MatchesReference) {
  for (const Shape& shape : kShapes) {
    OpCase c;
    c.name = "add " + shape.str();
    c.inputs = {{shape}, {shape, 2}};
    c.row_wise = true;
    c.op = [](const Context& ctx, std::span<const Var> in, std::span<const ParamRef>) {
      return std::vector<Var>{ops::add(ctx, in[0], in[1])};
    };
    c.reference = [](std::span<const Values> in, std::span<const Values>) {
      Values y = in[0];
      for (size_t i = 0; i < y.size(); ++i) y[i] += in[1][i];
      return std::vector<Values>{y};
    };
    check_op(c);
  }
}

TEST(Add, OfAValueToItself) {
  const auto doubled = [](const Values& x) {
    Values y = x;
    for (double& v : y) v *= 2;
    return y;
  };
  check_op(one_input(
      "x + x", {3, 5}, [](const Context& ctx, const Var& x) { return ops::add(ctx, x, x); }, doubled));
}

TEST(Scale, MatchesReference) {
  for (const Shape& shape : kShapes) {
    OpCase c = one_input(
        "scale", shape, [](const Context& ctx, const Var& x) { return ops::scale(ctx, x, -0.75f); },
        [](const Values& x) {
          Values y = x;
          for (double& v : y) v *= -0.75;
          return y;
        });
    c.row_wise = true;
    check_op(c);
  }
}

TEST(Cast, MatchesReference) {
  for (DType to : {DType::f32, DType::bf16, DType::f16}) {
    OpCase c = one_input(
        std::string("cast to ") + dtype_name(to), {5, 9},
        [to](const Context& ctx, const Var& x) { return ops::cast(ctx, x, to); }, [](const Values& x) { return x; });
    c.row_wise = true;
    if (to != DType::f32) {  // an f32 input is rounded, and so is its gradient
      c.c = 2 * dtype_eps(to) / dtype_eps(DType::f32);
      c.narrow = false;
      c.op = [to](const Context& ctx, std::span<const Var> in, std::span<const ParamRef>) {
        return std::vector<Var>{ops::cast(ctx, ops::cast(ctx, in[0], to), DType::f32)};
      };
    }
    check_op(c);
  }
}

TEST(Sum, MatchesReference) {
  for (const Shape& shape : {Shape{1}, Shape{255}, Shape{256}, Shape{3, 257}}) {
    OpCase c = one_input("sum", shape, ops::sum, [](const Values& x) {
      double sum = 0;
      for (double v : x) sum += v;
      return Values{sum};
    });
    c.inputs[0].mean = 1;  // a sum near 0 has no relative error
    c.strided = false;
    check_op(c);
  }
}

// What is no number shows in the sum, wherever it stands.
TEST(Sum, KeepsWhatIsNoNumber) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const auto sum_with = [&](const Values& bad, DType dtype) {
    Values x = random_values(300, 1);
    for (size_t i = 0; i < bad.size(); ++i) x[299 - 7 * i] = bad[i];
    return values_of(ops::sum(ctx, Var(tensor_of(ctx, {3, 100}, dtype, x))).value)[0];
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    EXPECT_TRUE(std::isnan(sum_with({nan}, dtype)));
    EXPECT_EQ(sum_with({inf}, dtype), inf);
    EXPECT_EQ(sum_with({-inf, -inf}, dtype), -inf);
    EXPECT_TRUE(std::isnan(sum_with({inf, -inf}, dtype)));
  }
}

TEST(Reshape, SharesMemory) {
  OpCase c = one_input(
      "reshape", {4, 6},
      [](const Context& ctx, const Var& x) {
        const Var y = ops::reshape(ctx, x, {2, 2, 6});
        EXPECT_EQ(y.value.storage(), x.value.storage());
        return ops::scale(ctx, y, 1.0f);
      },
      [](const Values& x) { return x; });
  c.row_wise = true;
  check_op(c);
}

// The heads of a fused projection: slices of the last axis, seen as [B,T,H,D] without a copy; one of them used twice,
// one not at all.
TEST(Split, PartsOfPartsKeepTheirPlace) {
  constexpr int64_t B = 2, T = 3, D = 4;
  OpCase c = one_input(
      "split", {B, T, 6 * D},
      [](const Context& ctx, const Var& x) {
        const std::vector<Var> parts = ops::split(ctx, x, {3 * D, 2 * D, D});
        const Var heads = ops::reshape(ctx, parts[0], {B, T, 3, D});
        EXPECT_EQ(heads.value.storage(), x.value.storage());
        const Var flat = ops::reshape(ctx, ops::scale(ctx, heads, 2), {B, T, 3 * D});
        return ops::add(ctx, flat, ops::scale(ctx, parts[0], 3));
      },
      [](const Values& x) {
        Values y;
        for (size_t row = 0; row < B * T; ++row) {
          for (size_t i = 0; i < 3 * D; ++i) y.push_back(5 * x[row * 6 * D + i]);
        }
        return y;
      });
  c.row_wise = true;
  check_op(c);
}

TEST(Reshape, OfStridedAxesThatCannotJoin) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  const Var x(Tensor::zeros(*ctx.arena, {4, 10}, DType::f32).narrow(1, 2, 6));
  const Var heads = ops::reshape(ctx, x, {4, 1, 2, 3, 1});
  EXPECT_EQ(heads.value.strides()[0], 10);
  EXPECT_EQ(heads.value.strides()[2], 3);
  EXPECT_EQ(heads.value.strides()[3], 1);
  const std::string message = error_of(ErrorCode::kInvalidArgument, [&] { ops::reshape(ctx, x, {24}); });
  EXPECT_NE(message.find("reshape: [4, 6]"), std::string::npos) << message;
}

TEST(Basic, ErrorsNameTheOpAndTheShapes) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  const Var a(ctx.empty({2, 3}, DType::f32)), b(ctx.empty({3, 2}, DType::f32)), ids(ctx.empty({2}, DType::i32));
  auto message = [&](auto&& action) { return error_of(ErrorCode::kInvalidArgument, action); };
  EXPECT_EQ(message([&] { ops::add(ctx, a, b); }), "add: f32 [2, 3] and f32 [3, 2] differ");
  EXPECT_EQ(message([&] { ops::scale(ctx, ids, 2); }), "scale: x [2] is i32, not f32, bf16 or f16");
  EXPECT_EQ(message([&] { ops::reshape(ctx, a, {4}); }), "reshape: [2, 3] into [4]");
  EXPECT_EQ(message([&] {
              ops::split(ctx, a, {1, 1});
            }),
            "split: the sizes add up to 2, the last axis of [2, 3] does not");
}

// Kept elements are divided by 1 - p and the others 0, of the share p within five standard deviations; the same again
// in backward. What a row loses depends on its sample, not on the rows beside it.
TEST(Dropout, DropsAShareOfEachSample) {
  const ExecResources resources = guarded_resources();
  ExecContext exec = resources.context;
  StepState step;
  exec.step = &step;
  exec.seed = 5;
  constexpr int64_t B = 3, n = 4000;
  constexpr double p = 0.25;
  const Values x = random_values(B * n, 31);
  const auto run = [&](int64_t first, int64_t rows, uint64_t site, Values* gradient) {
    Tape tape;
    const Context ctx(exec, &tape);
    step.first_sample = first;
    const Values part(x.begin() + first * n, x.begin() + (first + rows) * n);
    const Var in = tape.leaf(tensor_of(ctx, {rows, n / 10, 10}, DType::f32, part));
    const Var y = ops::dropout(ctx, in, p, site);
    const Tensor ones = tensor_of(ctx, {rows, n / 10, 10}, DType::f32, Values(static_cast<size_t>(rows * n), 1.0));
    if (gradient) {
      const Var roots[] = {y};
      const Tensor d[] = {ones};
      tape.backward(ctx, roots, d, {});
      *gradient = values_of(tape.grad(in));
    }
    return values_of(y.value);
  };
  Values gradient;
  const Values y = run(0, B, 9, &gradient);
  int64_t dropped = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    dropped += y[i] == 0;
    EXPECT_NEAR(y[i], y[i] == 0 ? 0 : x[i] / (1 - p), 1e-6 * std::abs(x[i]));
    EXPECT_FLOAT_EQ(static_cast<float>(gradient[i]), y[i] == 0 ? 0.0f : static_cast<float>(1 / (1 - p)));
  }
  EXPECT_NEAR(static_cast<double>(dropped) / (B * n), p, 5 * std::sqrt(p * (1 - p) / (B * n)));
  const Values second = run(1, 1, 9, nullptr);
  EXPECT_EQ(second, Values(y.begin() + n, y.begin() + 2 * n));
  EXPECT_NE(run(0, B, 10, nullptr), y);  // another site
  const Context plain(exec);
  const Var in(tensor_of(plain, {1, 4}, DType::f32, Values(4, 1.0)));
  EXPECT_EQ(values_of(ops::dropout(plain, in, p, 9).value), Values(4, 1.0));  // nothing is recorded: no training
}

}  // namespace
}  // namespace loam::testing
