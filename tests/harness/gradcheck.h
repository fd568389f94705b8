// Gradients against central differences.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace loam::testing {

// For a function of `x` evaluated in double: sum over i of direction[i] * df/dx[i], by a central difference with the
// step h = eps^(1/3) * max(1, max |x|) / max |direction|. Error{kInvalidArgument} if the sizes differ.
double directional_derivative(const std::function<double(std::span<const double>)>& function, std::span<const double> x,
                              std::span<const double> direction);

}  // namespace loam::testing
