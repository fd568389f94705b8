#include "tests/harness/expect_error.h"
#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

using namespace testing;  // NOLINT

TEST(SumSquaresKernel, MatchesF64AndAddsUp) {
  for_each_target([] {
    for (const DType dtype : kFloats) {
      for (const int64_t n : {0, 1, 3, 7, 17, 63, 65, 257, 16384, 16385, 100003}) {
        const Matrix x(dtype, 1, n, 0, random_values(n, 1));
        double out = 0.5, other = 0.5;
        const auto one = cpu(1), three = cpu(3);
        one.context.kernels->sum_squares(one.context, {x.row(), &out});
        three.context.kernels->sum_squares(three.context, {x.row(), &other});
        EXPECT_NEAR(out / (0.5 + std::pow(norm(x.values()), 2)), 1, 1e-13);
        EXPECT_EQ(out, other);
      }
    }
  });
}

TEST(SumSquaresKernel, NonFiniteShows) {
  for_each_target([] {
    const auto r = cpu(2);
    for (const double bad : {std::nan(""), static_cast<double>(INFINITY), static_cast<double>(-INFINITY)}) {
      for (const int64_t at : {0, 40000, 50000}) {
        Matrix x(DType::f32, 1, 50001, 0, random_values(50001, 1));
        x.put(0, at, bad);
        double out = 0;
        r.context.kernels->sum_squares(r.context, {x.row(), &out});
        EXPECT_FALSE(std::isfinite(out));
      }
    }
    const Matrix x(DType::f32, 1, 10, 0, Values(10, 1e25));  // squares and sum lie beyond f32
    double out = 0;
    r.context.kernels->sum_squares(r.context, {x.row(), &out});
    EXPECT_NEAR(out / 1e51, 1, 1e-6);
  });
}

struct Group {
  explicit Group(int64_t n)
      : master(DType::f32, 1, n, 0, random_values(n, 1)),
        weight(DType::bf16, 1, n),
        gradient(DType::f32, 1, n, 0, random_values(n, 2, 3)),
        m(DType::f32, 1, n),
        v(DType::f32, 1, n) {}
  AdamwArgs args(bool with_weight) const {
    return {
        master.row(), with_weight ? weight.row() : View{}, gradient.row(), m.row(), v.row(), 0.5f, 0.9f, 0.95f, 1e-8f,
        0.1f};
  }
  bool intact() const { return master.intact() && weight.intact() && gradient.intact() && m.intact() && v.intact(); }
  Matrix master, weight, gradient, m, v;
};

StepState step_state(int t) {
  StepState s;
  s.learning_rate = 1e-2f;
  s.beta1_correction = static_cast<float>(1 - std::pow(0.9, t));
  s.beta2_correction = static_cast<float>(1 - std::pow(0.95, t));
  s.gradient_scale = 0.25f;
  return s;
}

TEST(AdamwKernel, ThreeStepsMatchF64) {
  for_each_target([] {
    for (const int64_t n : {1, 3, 7, 17, 63, 65, 257, 10007}) {
      Group g(n);
      auto r = cpu(2);
      Values w = g.master.values(), m(w.size(), 0), v(w.size(), 0);
      const Values gradient = g.gradient.values();
      for (int t = 1; t <= 3; ++t) {
        const double lr = 1e-2 * 0.5;
        for (size_t i = 0; i < w.size(); ++i) {
          const double scaled = gradient[i] * 0.25;
          m[i] = 0.9 * m[i] + 0.1 * scaled;
          v[i] = 0.95 * v[i] + 0.05 * scaled * scaled;
          const double m_hat = m[i] / (1 - std::pow(0.9, t)), v_hat = v[i] / (1 - std::pow(0.95, t));
          w[i] += -lr * 0.1 * w[i] - lr * m_hat / (std::sqrt(v_hat) + 1e-8);
        }
        StepState state = step_state(t);
        r.context.step = &state;
        r.context.kernels->adamw(r.context, g.args(true));
      }
      // beta and the corrections are themselves rounded to f32: 0.1 and 0.05 as differences are 1e-7 off.
      const double f32 = unit_roundoff(DType::f32);
      expect_close(g.master.values(), w, 4 * f32, "master");
      expect_close(g.m.values(), m, 16 * f32, "m");
      expect_close(g.v.values(), v, 32 * f32, "v");
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(g.weight.get(0, i),
                  static_cast<double>(static_cast<float>(Bf16(static_cast<float>(g.master.get(0, i))))));
      }
      EXPECT_TRUE(g.intact());
    }
  });
}

TEST(AdamwKernel, SkipChangesNothingAndThreadsAgree) {
  Group a(10007), b(10007);
  const auto before = a.master.memory();
  StepState state = step_state(1);
  state.skip = 1;
  auto one = cpu(1), three = cpu(3);
  one.context.step = three.context.step = &state;
  one.context.kernels->adamw(one.context, a.args(true));
  EXPECT_EQ(a.master.memory(), before);
  EXPECT_EQ(a.m.values(), Values(10007, 0));
  EXPECT_EQ(a.weight.values(), Values(10007, 0));
  state.skip = 0;
  one.context.kernels->adamw(one.context, a.args(false));
  three.context.kernels->adamw(three.context, b.args(true));
  EXPECT_EQ(a.weight.values(), Values(10007, 0)) << "no bf16 copy was asked for";
  EXPECT_EQ(a.master.memory(), b.master.memory());
  EXPECT_EQ(a.m.memory(), b.m.memory());
  EXPECT_EQ(a.v.memory(), b.v.memory());
}

TEST(AdamwKernel, NeedsStepState) {
  Group g(3);
  const auto r = cpu();
  EXPECT_LOAM_ERROR(r.context.kernels->adamw(r.context, g.args(false)), ErrorCode::kInvalidArgument, "step state");
}

}  // namespace
}  // namespace loam
