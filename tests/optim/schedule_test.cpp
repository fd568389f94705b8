#include "loam/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "loam/base/file.h"
#include "tests/harness/shared.h"

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

// nanoGPT's get_lr with lr_decay_iters = 60 and warmup_iters = 10, worked out by hand: the middle is at 35, and the
// rate stays at its minimum, or goes on falling where the run ends earlier.
TEST(Schedule, AHorizonOfItsOwn) {
  for (const ScheduleKind kind : {ScheduleKind::cosine, ScheduleKind::linear}) {
    OptimizerConfig config = config_of(kind);
    config.decay_until = 60;
    for (const int64_t steps : {40, 60, 1000}) {
      EXPECT_DOUBLE_EQ(learning_rate(config, 5, steps), 5e-4);
      EXPECT_DOUBLE_EQ(learning_rate(config, 10, steps), 1e-3);
      EXPECT_NEAR(learning_rate(config, 35, steps), 5.5e-4, 1e-15);
      EXPECT_GT(learning_rate(config, 59, steps), 1e-4);
      EXPECT_DOUBLE_EQ(learning_rate(config, 60, steps), 1e-4);
      EXPECT_DOUBLE_EQ(learning_rate(config, 61, steps), 1e-4);
      EXPECT_DOUBLE_EQ(learning_rate(config, 999, steps), 1e-4);
    }
  }
}

// torch.optim.lr_scheduler and transformers' schedules, every step: tests/fixtures/make_optimizer_fixture.py.
TEST(Schedule, EveryKindEqualsTorchOrTransformersOver1000Steps) {
  const std::string path = testing::source_path("tests/fixtures/optimizers.json");
  const Json fixture = Json::parse(read_file(path), path);
  std::set<ScheduleKind> kinds;
  std::set<DecayShape> shapes;
  for (const Json& one : fixture.at("schedules").as_array()) {
    SCOPED_TRACE(one.at("config").dump());
    OptimizerConfig config;
    config_from_json(config, one.at("config"));
    kinds.insert(config.schedule);
    shapes.insert(config.decay_shape);
    const Json::Array& rates = one.at("rates").as_array();
    ASSERT_EQ(rates.size(), 1000u);
    for (size_t step = 0; step < rates.size(); ++step) {
      const double expected = rates[step].as_double();
      // Twelve digits are in the file; torch's cosine is a product of as many factors as there were steps.
      ASSERT_NEAR(learning_rate(config, static_cast<int64_t>(step), 1000), expected, 1e-11 * config.lr) << step;
    }
  }
  EXPECT_EQ(kinds.size(), 5u);
  EXPECT_EQ(shapes.size(), 3u);
}

TEST(Schedule, InverseSquareRootHasAFloorAndNoEnd) {
  OptimizerConfig config = config_of(ScheduleKind::inverse_sqrt);
  EXPECT_DOUBLE_EQ(learning_rate(config, 40, 100), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1000, 100), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1000000, 100), 1e-4);
  config.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, 100), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config, 4, 100), 5e-4);
}

TEST(Schedule, StepsOfTheDecayGoBeforeItsShare) {
  OptimizerConfig config = config_of(ScheduleKind::wsd);
  config.decay_steps = 40;
  EXPECT_DOUBLE_EQ(learning_rate(config, 60, 100), 1e-3);
  EXPECT_NEAR(learning_rate(config, 80, 100), 5.5e-4, 1e-15);
  config.decay_steps = 1000;  // longer than the run: it begins after the warm-up
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 100), 1e-3);
  EXPECT_NEAR(learning_rate(config, 55, 100), 5.5e-4, 1e-15);
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
