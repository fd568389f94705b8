#include "tests/harness/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "loam/base/error.h"

namespace loam::testing {

double directional_derivative(const std::function<double(std::span<const double>)>& function, std::span<const double> x,
                              std::span<const double> direction) {
  LOAM_CHECK(x.size() == direction.size(), "gradcheck: {} values and a direction of {}", x.size(), direction.size());
  double size = 1, length = 0;
  for (double v : x) size = std::max(size, std::abs(v));
  for (double v : direction) length = std::max(length, std::abs(v));
  if (length == 0) return 0;
  const double h = std::cbrt(std::numeric_limits<double>::epsilon()) * size / length;
  std::vector<double> at(x.begin(), x.end());
  auto moved = [&](double step) {
    for (size_t i = 0; i < at.size(); ++i) at[i] = x[i] + step * direction[i];
    return function(at);
  };
  const double up = moved(h), down = moved(-h);
  return (up - down) / (2 * h);
}

}  // namespace loam::testing
