#include "loam/config/rope_scaling.h"

#include <algorithm>
#include <cmath>

namespace loam {
namespace {

double plain_frequency(int64_t dim, double theta, int64_t k) {
  return std::pow(theta, -2 * static_cast<double>(k) / static_cast<double>(dim));
}

// Pairs up to `low` keep their frequencies, those from `high` on are stretched whole.
struct YarnBounds {
  double low = 0, high = 0;
};
YarnBounds yarn_bounds(int64_t dim, double theta, const RopeScaling& s) {
  // The pair that turns so many times over the original context, as a real number.
  const auto pair_that_turns = [&](double turns) {
    return static_cast<double>(dim) * std::log(static_cast<double>(s.original_context) / (turns * 2 * M_PI)) /
           (2 * std::log(theta));
  };
  double low = pair_that_turns(s.beta_fast), high = pair_that_turns(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  return {low, low == high ? high + 0.001 : high};
}

}  // namespace

std::vector<double> rope_stretches(int64_t dim, double theta, const RopeScaling& s, int64_t context_length) {
  if (s.kind == RopeScalingKind::longrope) {
    return context_length > s.original_context ? s.long_factors : s.short_factors;
  }
  const YarnBounds yarn = s.kind == RopeScalingKind::yarn ? yarn_bounds(dim, theta, s) : YarnBounds{};
  std::vector<double> stretches;
  for (int64_t k = 0; k < dim / 2; ++k) {
    double kept = 1;  // share of the frequency that stays
    if (s.kind == RopeScalingKind::linear) kept = 0;
    if (s.kind == RopeScalingKind::llama3) {
      const double turns = static_cast<double>(s.original_context) * plain_frequency(dim, theta, k) / (2 * M_PI);
      kept = std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
    }
    if (s.kind == RopeScalingKind::yarn) {
      kept = 1 - std::clamp((static_cast<double>(k) - yarn.low) / (yarn.high - yarn.low), 0.0, 1.0);
    }
    stretches.push_back(1 / (kept + (1 - kept) / s.factor));
  }
  return stretches;
}

std::vector<double> rope_frequencies(int64_t dim, double theta, const RopeScaling& s, int64_t context_length) {
  if (s.kind == RopeScalingKind::ntk) theta = ntk_theta(theta, dim, s.factor);
  std::vector<double> values = rope_stretches(dim, theta, s, context_length);
  for (size_t k = 0; k < values.size(); ++k) {
    values[k] = plain_frequency(dim, theta, static_cast<int64_t>(k)) / values[k];
  }
  return values;
}

double ntk_theta(double theta, int64_t dim, double factor) {
  const auto R = static_cast<double>(dim);
  return dim > 2 ? theta * std::pow(factor, R / (R - 2)) : theta;
}

double yarn_magnitude(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

double rope_magnitude(const RopeScaling& s) {
  if (s.kind != RopeScalingKind::yarn && s.kind != RopeScalingKind::longrope) return 1;
  if (s.attention_factor > 0) return s.attention_factor;
  if (s.kind == RopeScalingKind::yarn) return yarn_magnitude(s.factor);
  return s.factor <= 1 ? 1 : std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_context)));
}

}  // namespace loam
