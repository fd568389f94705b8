#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

using namespace testing;  // NOLINT

constexpr Activation kKinds[] = {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu,
                                 Activation::relu_squared};

double value(Activation kind, double x) {
  switch (kind) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:  // (1 + tanh u) / 2 = 1 / (1 + exp(-2u)), which f64 can tell from 0 for negative u
      return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::relu_squared:
      return std::pow(std::max(x, 0.0), 2);
  }
  return 0;
}

double slope(Activation kind, double x) {
  switch (kind) {
    case Activation::silu: {
      const double s = 1 / (1 + std::exp(-x));
      return s * (1 + x * (1 - s));
    }
    case Activation::gelu:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    case Activation::gelu_tanh: {
      const double c = std::sqrt(2 / M_PI), s = 1 / (1 + std::exp(-2 * c * (x + 0.044715 * x * x * x)));
      return s + x * s * (1 - s) * 2 * c * (1 + 3 * 0.044715 * x * x);
    }
    case Activation::relu:
      return x > 0 ? 1 : 0;
    case Activation::relu_squared:
      return 2 * std::max(x, 0.0);
  }
  return 0;
}

// Every part of the curve: each value alone, relative to itself. f32's own sensitivity is x f'(x) / f(x) roundings,
// which grows like x^2 in the tails.
TEST(ActivationKernel, EveryValueIsAccurate) {
  for_each_target([] {
    const auto r = cpu(2);
    Values x;
    for (int i = -12000; i <= 12000; ++i) x.push_back(i / 1000.0);
    const auto n = static_cast<int64_t>(x.size());
    Matrix in(DType::f32, 1, n, 0, x), out(DType::f32, 1, n), d_out(DType::f32, 1, n, 0, Values(x.size(), 1)),
        d_x = out;
    for (const Activation kind : kKinds) {
      r.context.kernels->activation_fwd(r.context, {kind, in.view(), out.view()});
      r.context.kernels->activation_bwd(r.context, {kind, in.view(), d_out.view(), d_x.view()});
      double worst = 0, worst_slope = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double v = in.get(0, i), expected = value(kind, v);
        if (std::abs(expected) > 1e-30) worst = std::max(worst, std::abs(out.get(0, i) / expected - 1));
        // The slope crosses 0; its error is measured against its terms' size, which is at most 1.2 for all but the
        // square.
        worst_slope =
            std::max(worst_slope, std::abs(d_x.get(0, i) - slope(kind, v)) / std::max(1.0, std::abs(slope(kind, v))));
      }
      EXPECT_LT(worst, 1e-5) << static_cast<int>(kind);
      EXPECT_LT(worst_slope, 1e-6) << static_cast<int>(kind);
    }
  });
}

TEST(ActivationKernel, MatchesF64) {
  for_each_target([] {
    const auto r = cpu(2);
    for (const Activation kind : kKinds) {
      for (const DType dtype : kFloats) {
        for (const int64_t F : {1, 3, 7, 17, 63, 64, 65, 257, 264}) {
          const int64_t N = 5, aligned = F % 8 == 0 ? 8 : 0;  // rows that begin at multiples of 16 bytes
          const double tolerance = 16 * unit_roundoff(DType::f32) + unit_roundoff(dtype);
          Matrix x(dtype, N, F, aligned ? aligned : 3, random_values(N * F, 1, 2)),
              d_out(dtype, N, F, aligned ? aligned : 1, random_values(N * F, 2));
          Matrix out(dtype, N, F, aligned ? aligned : 2), d_x(dtype, N, F, aligned ? aligned : 5);
          Values y, dx;
          const Values x_values = x.values(), d_values = d_out.values();
          for (size_t i = 0; i < x_values.size(); ++i) {
            y.push_back(value(kind, x_values[i]));
            dx.push_back(slope(kind, x_values[i]) * d_values[i]);
          }
          r.context.kernels->activation_fwd(r.context, {kind, x.view(), out.view()});
          expect_close(out.values(), y, tolerance, "out");
          r.context.kernels->activation_bwd(r.context, {kind, x.view(), d_out.view(), d_x.view()});
          expect_close(d_x.values(), dx, tolerance, "d_x");
          r.context.kernels->activation_bwd(r.context, {kind, x.view(), d_out.view(), d_x.view(), true});
          for (double& v : dx) v *= 2;
          expect_close(d_x.values(), dx, 2 * tolerance, "d_x added");
          EXPECT_TRUE(out.intact() && d_x.intact());
          r.context.kernels->activation_bwd(r.context, {kind, x.view(), d_out.view(), d_out.view()});
          for (double& v : dx) v /= 2;
          expect_close(d_out.values(), dx, tolerance, "d_x over d_out");
          r.context.kernels->activation_fwd(r.context, {kind, x.view(), x.view()});
          expect_close(x.values(), y, tolerance, "in place");
          EXPECT_TRUE(x.intact() && d_out.intact());
        }
      }
    }
  });
}

TEST(ActivationKernel, GatedMatchesF64) {
  for_each_target([] {
    const auto one = cpu(1), three = cpu(3);
    for (const Activation kind : kKinds) {
      for (const DType dtype : kFloats) {
        for (const int64_t F : {1, 3, 7, 17, 63, 64, 65, 257, 264}) {
          const int64_t N = 33, aligned = F % 8 == 0 ? 8 : 0;  // rows that begin at multiples of 16 bytes
          const double tolerance = 16 * unit_roundoff(DType::f32) + unit_roundoff(dtype);
          Matrix x(dtype, N, 2 * F, aligned ? aligned : 3, random_values(N * 2 * F, 1, 2)),
              d_out(dtype, N, F, aligned ? aligned : 1, random_values(N * F, 2));
          Matrix out(dtype, N, F, aligned ? aligned : 2), again = out, d_x(dtype, N, 2 * F, aligned ? aligned : 5),
                                                          d_again = d_x;
          Values y, dx(static_cast<size_t>(N * 2 * F));
          for (int64_t n = 0; n < N; ++n) {
            for (int64_t c = 0; c < F; ++c) {
              const double gate = x.get(n, c), up = x.get(n, F + c);
              y.push_back(value(kind, gate) * up);
              dx[static_cast<size_t>(n * 2 * F + c)] = d_out.get(n, c) * up * slope(kind, gate);
              dx[static_cast<size_t>(n * 2 * F + F + c)] = d_out.get(n, c) * value(kind, gate);
            }
          }
          one.context.kernels->gated_fwd(one.context, {kind, x.view(), out.view()});
          three.context.kernels->gated_fwd(three.context, {kind, x.view(), again.view()});
          expect_close(out.values(), y, tolerance, "out");
          EXPECT_EQ(out.memory(), again.memory());
          for (const bool accumulate : {false, true}) {
            one.context.kernels->gated_bwd(one.context, {kind, x.view(), d_out.view(), d_x.view(), accumulate});
            three.context.kernels->gated_bwd(three.context, {kind, x.view(), d_out.view(), d_again.view(), accumulate});
            expect_close(d_x.values(), dx, 2 * tolerance, "d_x");
            EXPECT_EQ(d_x.memory(), d_again.memory());
            for (double& v : dx) v *= 2;
          }
          EXPECT_TRUE(x.intact() && out.intact() && d_x.intact() && d_out.intact());
        }
      }
    }
  });
}

TEST(ActivationKernel, NanPassesAndHugeValuesStayFinite) {
  for_each_target([] {
    const auto r = cpu();
    for (const Activation kind : kKinds) {
      Matrix x(DType::f32, 1, 6, 0, {std::nan(""), 1e18, -1e18, INFINITY, -3e38, 0});
      Matrix out(DType::f32, 1, 6), d_x(DType::f32, 1, 6), d_out(DType::f32, 1, 6, 0, Values(6, 1));
      r.context.kernels->activation_fwd(r.context, {kind, x.view(), out.view()});
      r.context.kernels->activation_bwd(r.context, {kind, x.view(), d_out.view(), d_x.view()});
      EXPECT_TRUE(std::isnan(out.get(0, 0)));
      const double high = kind == Activation::relu_squared ? 1e36 : 1e18;
      EXPECT_NEAR(out.get(0, 1) / high, 1, 1e-6);
      EXPECT_EQ(out.get(0, 2), 0);
      EXPECT_EQ(out.get(0, 3), INFINITY);
      EXPECT_EQ(out.get(0, 4), 0);
      EXPECT_EQ(out.get(0, 5), 0);
      EXPECT_NEAR(d_x.get(0, 1) / (kind == Activation::relu_squared ? 2e18 : 1), 1, 1e-6);
      EXPECT_EQ(d_x.get(0, 2), 0);
      EXPECT_EQ(d_x.get(0, 4), 0);
    }
  });
}

}  // namespace
}  // namespace loam
