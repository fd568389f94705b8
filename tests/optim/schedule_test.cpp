#include "loam/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace loam {
namespace {

OptimizerConfig config_of(ScheduleKind kind) {
  OptimizerConfig config;
  config.lr = 1e-3;
  config.min_lr_ratio = 0.1;
  config.warmup_steps = 10;
  config.schedule = kind;
  config.decay_fraction = 0.2;
  return config;
}

// By hand: the middle of the cosine is the mean of its ends, a quarter of the way is min + (max - min) (1 + sqrt(1/2))
// / 2.
TEST(Schedule, CosineAtHandPickedSteps) {
  const OptimizerConfig config = config_of(ScheduleKind::cosine);
  EXPECT_EQ(learning_rate(config, 0, 110), 0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, 110), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 9, 110), 9e-4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 110), 1e-3);
  EXPECT_NEAR(learning_rate(config, 35, 110), 1e-4 + 9e-4 * 0.85355339059327, 1e-15);
  EXPECT_NEAR(learning_rate(config, 60, 110), 5.5e-4, 1e-15);
  EXPECT_NEAR(learning_rate(config, 110, 110), 1e-4, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate(config, 111, 110), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100000, 110), 1e-4);
}

TEST(Schedule, CosineWithoutWarmupStartsAtThePeak) {
  OptimizerConfig config = config_of(ScheduleKind::cosine);
  config.warmup_steps = 0;
  config.min_lr_ratio = 0;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, 100), 1e-3);
  EXPECT_NEAR(learning_rate(config, 50, 100), 5e-4, 1e-15);
  EXPECT_NEAR(learning_rate(config, 99, 100), 1e-3 * std::pow(std::sin(M_PI / 200), 2), 1e-15);
}

TEST(Schedule, WsdHoldsAndThenFallsLinearly) {
  const OptimizerConfig config = config_of(ScheduleKind::wsd);  // decays over steps 80 .. 100
  EXPECT_DOUBLE_EQ(learning_rate(config, 5, 100), 5e-4);
  for (const int64_t step : {10, 40, 79, 80}) EXPECT_DOUBLE_EQ(learning_rate(config, step, 100), 1e-3) << step;
  EXPECT_NEAR(learning_rate(config, 85, 100), 1e-3 - 9e-4 * 0.25, 1e-15);
  EXPECT_NEAR(learning_rate(config, 90, 100), 5.5e-4, 1e-15);
  EXPECT_NEAR(learning_rate(config, 100, 100), 1e-4, 1e-15);
}

TEST(Schedule, WsdNeverJumpsWhenWarmupReachesIntoTheDecay) {
  OptimizerConfig config = config_of(ScheduleKind::wsd);
  config.warmup_steps = 90;
  for (int64_t step = 1; step <= 100; ++step) {
    const double change = std::abs(learning_rate(config, step, 100) - learning_rate(config, step - 1, 100));
    EXPECT_LE(change, 9e-4 / 10 + 1e-12) << step;
  }
}

TEST(Schedule, ConstantStays) {
  const OptimizerConfig config = config_of(ScheduleKind::constant);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3, 100), 3e-4);
  for (const int64_t step : {10, 50, 99, 1000}) EXPECT_DOUBLE_EQ(learning_rate(config, step, 100), 1e-3);
}

TEST(Schedule, WarmupLongerThanTheRunOnlyRises) {
  OptimizerConfig config = config_of(ScheduleKind::cosine);
  config.warmup_steps = 200;
  for (int64_t step = 0; step < 100; ++step) EXPECT_DOUBLE_EQ(learning_rate(config, step, 100), 1e-3 * step / 200.0);
}

}  // namespace
}  // namespace loam
