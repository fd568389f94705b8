#include "loam/nn/positions.h"

#include <bit>
#include <cmath>

#include "loam/base/parallel_for.h"
#include "loam/config/rope_scaling.h"

namespace loam {

ops::Rotation make_rotation(const Context& ctx, int64_t dim, double theta, const RopeScaling& s,
                            int64_t context_length) {
  LOAM_CHECK(dim > 0 && dim % 2 == 0 && theta > 0, "rope: {} rotated elements with theta {}", dim, theta);
  const std::vector<double> exact = rope_frequencies(dim, theta, s, context_length);
  const std::vector<float> values(exact.begin(), exact.end());
  return {Tensor::from<float>(*ctx.arena, {dim / 2}, values), static_cast<float>(rope_magnitude(s))};
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
