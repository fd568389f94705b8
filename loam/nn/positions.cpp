#include "loam/nn/positions.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "loam/base/parallel_for.h"

namespace loam {
namespace {

// The pair that turns `turns` times over the original context, as a real number.
double pair_that_turns(double turns, int64_t dim, double theta, const RopeScaling& s) {
  return static_cast<double>(dim) * std::log(static_cast<double>(s.original_context) / (turns * 2 * M_PI)) /
         (2 * std::log(theta));
}

struct YarnBounds {
  double low, high;
};
YarnBounds yarn_bounds(int64_t dim, double theta, const RopeScaling& s) {
  double low = pair_that_turns(s.beta_fast, dim, theta, s), high = pair_that_turns(s.beta_slow, dim, theta, s);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  return {low, low == high ? high + 0.001 : high};
}

double scaled_frequency(double frequency, int64_t k, const YarnBounds& yarn, const RopeScaling& s, bool longer) {
  const double turns = static_cast<double>(s.original_context) * frequency / (2 * M_PI);  // over the original context
  double kept = 0;  // share of the frequency that stays
  switch (s.kind) {
    case RopeScalingKind::none:
    case RopeScalingKind::ntk:
      return frequency;
    case RopeScalingKind::longrope:
      return frequency / (longer ? s.long_factors : s.short_factors)[static_cast<size_t>(k)];
    case RopeScalingKind::linear:
      break;
    case RopeScalingKind::llama3:
      kept = std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
      break;
    case RopeScalingKind::yarn:
      kept = 1 - std::clamp((static_cast<double>(k) - yarn.low) / (yarn.high - yarn.low), 0.0, 1.0);
      break;
  }
  return frequency * (kept + (1 - kept) / s.factor);
}

double attention_factor(const RopeScaling& s) {
  if (s.kind != RopeScalingKind::yarn && s.kind != RopeScalingKind::longrope) return 1;
  if (s.attention_factor > 0) return s.attention_factor;
  if (s.factor <= 1) return 1;
  if (s.kind == RopeScalingKind::yarn) return 0.1 * std::log(s.factor) + 1;
  return std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_context)));
}

}  // namespace

ops::Rotation make_rotation(const Context& ctx, int64_t dim, double theta, const RopeScaling& s,
                            int64_t context_length) {
  LOAM_CHECK(dim > 0 && dim % 2 == 0 && theta > 0, "rope: {} rotated elements with theta {}", dim, theta);
  const auto R = static_cast<double>(dim);
  if (s.kind == RopeScalingKind::ntk) theta = ntk_theta(theta, dim, s.factor);
  const YarnBounds yarn = s.kind == RopeScalingKind::yarn ? yarn_bounds(dim, theta, s) : YarnBounds{};
  std::vector<float> values;
  for (int64_t k = 0; k < dim / 2; ++k) {
    const double plain = std::pow(theta, -2 * static_cast<double>(k) / R);
    values.push_back(static_cast<float>(scaled_frequency(plain, k, yarn, s, context_length > s.original_context)));
  }
  return {Tensor::from<float>(*ctx.arena, {dim / 2}, values), static_cast<float>(attention_factor(s))};
}

Tensor alibi_slopes(const Context& ctx, int64_t heads) {
  const auto whole = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> slopes;
  for (int64_t i = 0; i < heads; ++i) {
    const double eighths = i < whole ? static_cast<double>(i + 1) / static_cast<double>(whole)
                                     : static_cast<double>(2 * (i - whole) + 1) / static_cast<double>(2 * whole);
    slopes.push_back(static_cast<float>(std::exp2(-8 * eighths)));
  }
  return Tensor::from<float>(*ctx.arena, {heads}, slopes);
}

Tensor sinusoidal_table(const Context& ctx, int64_t length, int64_t dim, DType dtype) {
  std::vector<float> values(static_cast<size_t>(length * dim));
  std::vector<double> frequency;
  for (int64_t c = 0; c < dim; c += 2) {
    frequency.push_back(std::pow(10000.0, -static_cast<double>(c) / static_cast<double>(dim)));
  }
  parallel_for(ctx.threads, length, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin * dim; i < end * dim; ++i) {
      const int64_t c = i % dim;
      const double angle = static_cast<double>(i / dim) * frequency[static_cast<size_t>(c / 2)];
      values[static_cast<size_t>(i)] = static_cast<float>(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  });
  return visit_float(dtype, "positions", [&](auto type) {
    using T = decltype(type);
    const std::vector<T> rounded(values.begin(), values.end());
    return Tensor::from<T>(*ctx.arena, {length, dim}, rounded, MemoryKind::weights);
  });
}

PositionTables::PositionTables(const Context& ctx, const ModelConfig& config, DType dtype) {
  bool rope = false, alibi = false;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    rope |= layer_position(config, layer) == PositionKind::rope;
    alibi |= layer_position(config, layer) == PositionKind::alibi;
  }
  if (rope) {
    rotation = make_rotation(ctx, config.rope_dim, config.rope_theta, config.rope_scaling, config.context_length);
    window_rotation = config.window_rope_theta > 0
                          ? make_rotation(ctx, config.rope_dim, config.window_rope_theta, {}, config.context_length)
                          : rotation;
  }
  if (alibi) slopes = alibi_slopes(ctx, config.heads);
  if (config.positions == PositionKind::sinusoidal) {
    sinusoids = sinusoidal_table(ctx, config.context_length, config.dim, dtype);
  }
}

}  // namespace loam
