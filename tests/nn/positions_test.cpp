// Rotary angles far out, for every scaling, against the formulas of the papers in double.
#include "loam/nn/positions.h"

#include <gtest/gtest.h>

#include <cmath>

namespace loam {
namespace {

struct Scaled {
  const char* name;
  double theta;
  RopeScaling scaling;
  int64_t context;
};

constexpr int64_t kPairs = 32, kRotated = 2 * kPairs;

std::vector<Scaled> scalings() {
  std::vector<double> short_factors, long_factors;
  for (int k = 0; k < kPairs; ++k) {
    short_factors.push_back(1 + 0.01 * k);
    long_factors.push_back(1 + 0.37 * k * k);
  }
  RopeScaling linear, ntk, llama3, yarn, exact_yarn, longrope;
  linear.kind = RopeScalingKind::linear, linear.factor = 4;
  ntk.kind = RopeScalingKind::ntk, ntk.factor = 4;
  llama3.kind = RopeScalingKind::llama3, llama3.factor = 8, llama3.original_context = 8192;
  yarn.kind = RopeScalingKind::yarn, yarn.factor = 16, yarn.original_context = 4096, yarn.attention_factor = 1;
  exact_yarn = yarn, exact_yarn.truncate = false;
  longrope.kind = RopeScalingKind::longrope, longrope.original_context = 4096, longrope.attention_factor = 1;
  longrope.short_factors = short_factors, longrope.long_factors = long_factors;
  return {{"none", 10000, {}, 2048},
          {"none", 500000, {}, 2048},
          {"linear", 10000, linear, 8192},
          {"ntk", 10000, ntk, 8192},
          {"llama3", 500000, llama3, 65536},
          {"yarn", 10000, yarn, 65536},
          {"yarn, not truncated", 1000000, exact_yarn, 65536},
          {"longrope, short", 10000, longrope, 4096},
          {"longrope, long", 10000, longrope, 131072}};
}

// Radians by which pair k turns from one position to the next.
double turn(const Scaled& c, int k) {
  const RopeScaling& s = c.scaling;
  const double d = kRotated, plain = std::exp(-2.0 * k / d * std::log(c.theta)), wave = 2 * M_PI / plain;
  const auto L = static_cast<double>(s.original_context);
  switch (s.kind) {
    case RopeScalingKind::none:
      return plain;
    case RopeScalingKind::linear:
      return plain / s.factor;
    case RopeScalingKind::ntk:
      return std::exp(-2.0 * k / d * std::log(c.theta * std::pow(s.factor, d / (d - 2))));
    case RopeScalingKind::llama3: {
      if (wave > L / s.low_freq_factor) return plain / s.factor;
      if (wave < L / s.high_freq_factor) return plain;
      const double smooth = (L / wave - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      return (1 - smooth) * plain / s.factor + smooth * plain;
    }
    case RopeScalingKind::yarn: {
      const auto dimension = [&](double rotations) {
        return d * std::log(L / (rotations * 2 * M_PI)) / (2 * std::log(c.theta));
      };
      double low = dimension(s.beta_fast), high = dimension(s.beta_slow);
      if (s.truncate) low = std::floor(low), high = std::ceil(high);
      const double ramp = std::min(1.0, std::max(0.0, (k - low) / (high - low)));
      return plain / s.factor * ramp + plain * (1 - ramp);
    }
    case RopeScalingKind::longrope:
      return plain / (c.context > s.original_context ? s.long_factors : s.short_factors)[static_cast<size_t>(k)];
  }
  return NAN;
}

// The largest error of cos and sin of all pairs at a position.
double error_at(const ExecResources& exec, const Scaled& c, int32_t position, RopeLayout layout) {
  const Context ctx(exec.context);
  const ops::Rotation rotation = make_rotation(ctx, kRotated, c.theta, c.scaling, c.context);
  const bool half = layout == RopeLayout::half;
  const auto real = [&](int k) { return static_cast<size_t>(half ? k : 2 * k); };
  const auto imaginary = [&](int k) { return static_cast<size_t>(half ? k + kPairs : 2 * k + 1); };
  std::vector<float> ones(kRotated, 0.0f);  // (1, 0) turns into (cos, sin)
  for (int k = 0; k < kPairs; ++k) ones[real(k)] = 1;
  const Var x(Tensor::from<float>(*exec.arena, {1, 1, 1, kRotated}, ones));
  const Tensor turned =
      ops::rope(ctx, x, Tensor::from<int32_t>(*exec.arena, {1, 1}, std::vector{position}), rotation, layout).value;
  double worst = 0;
  for (int k = 0; k < kPairs; ++k) {
    const double angle = position * turn(c, k);
    worst = std::max(worst, std::abs(turned.data<float>()[real(k)] - std::cos(angle)));
    worst = std::max(worst, std::abs(turned.data<float>()[imaginary(k)] - std::sin(angle)));
  }
  return worst;
}

TEST(Positions, AnglesOfEveryScalingAreAccurateFarOut) {
  const ExecResources exec = make_exec_resources(Device{}, 1);
  for (const Scaled& c : scalings()) {
    for (const RopeLayout layout : {RopeLayout::half, RopeLayout::interleaved}) {
      SCOPED_TRACE(fmt::format("{} theta {}", c.name, c.theta));
      // A frequency is an f32 of at most 1: it is off by no more than 2^-25, and so is the angle by that of each step.
      for (const int32_t position : {0, 1, 257, 4096, 15962, 32767, 32768, 131071}) {
        EXPECT_LT(error_at(exec, c, position, layout), position * 0x1p-25 + 1e-6) << position;
      }
    }
  }
}

// Where none is stated: YaRN's 0.1 ln s + 1, and LongRoPE's sqrt(1 + ln s / ln L).
TEST(Positions, ScalingsHaveMagnitudesOfTheirOwn) {
  const ExecResources exec = make_exec_resources(Device{}, 1);
  const Context ctx(exec.context);
  RopeScaling yarn, longrope;
  yarn.kind = RopeScalingKind::yarn, yarn.factor = 16, yarn.original_context = 4096;
  longrope.kind = RopeScalingKind::longrope, longrope.factor = 64, longrope.original_context = 4096;
  longrope.short_factors = longrope.long_factors = {1};
  EXPECT_NEAR(make_rotation(ctx, 2, 10000, yarn, 65536).factor, 1.2772588722, 1e-6);         // ln 16 = 2.772588722
  EXPECT_NEAR(make_rotation(ctx, 2, 10000, longrope, 131072).factor, std::sqrt(1.5), 1e-6);  // 4096 = 64^2
}

// In bf16 position 15962 is 15936, whose cosine is another.
TEST(Positions, APositionIsNotRounded) {
  const ExecResources exec = make_exec_resources(Device{}, 1);
  const Context ctx(exec.context);
  const ops::Rotation rotation = make_rotation(ctx, 2, 10000, {}, 2048);
  const Var x(Tensor::from<float>(*exec.arena, {1, 1, 1, 2}, std::vector{1.0f, 0.0f}));
  const Tensor at = Tensor::from<int32_t>(*exec.arena, {1, 1}, std::vector{15962});
  const Tensor turned = ops::rope(ctx, x, at, rotation, RopeLayout::half).value;
  EXPECT_NEAR(turned.data<float>()[0], -0.908015901, 1e-6);
  EXPECT_NEAR(turned.data<float>()[1], 0.418935703, 1e-6);
}

}  // namespace
}  // namespace loam
