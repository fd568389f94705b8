#include "tests/harness/gradcheck.h"

#include <gtest/gtest.h>

#include <cmath>

namespace loam {
namespace {

TEST(GradCheck, KnownDerivative) {
  // f = sin(x) y^2: df/dx = cos(x) y^2, df/dy = 2 sin(x) y
  const auto f = [](std::span<const double> x) { return std::sin(x[0]) * x[1] * x[1]; };
  const double x[] = {0.7, -3.0}, direction[] = {0.5, 2.0};
  const double want = 0.5 * std::cos(0.7) * 9 + 2 * 2 * std::sin(0.7) * -3;
  EXPECT_NEAR(testing::directional_derivative(f, x, direction), want, 1e-9 * std::abs(want));
  const double none[] = {0, 0};
  EXPECT_EQ(testing::directional_derivative(f, x, none), 0);
}

}  // namespace
}  // namespace loam
