// What is said about too little memory, and the micro-batch that is found.
#include <gtest/gtest.h>

#include "loam/base/progress.h"
#include "loam/train/memory.h"
#include "tests/harness/expect_error.h"
#include "tests/train/run_testing.h"

namespace loam {
namespace {

TrainConfig some_config() {
  TrainConfig config = testing::tiny_config();
  config.model.layers = 9;
  config.model.context_length = 64;
  config.batch = 12;
  config.micro_batch = 12;
  return derive(config);
}

int64_t total(const ExecContext& ctx, TrainConfig config, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) config_set(config, setting);
  return predict_memory(ctx, config).total();
}

TEST(MemoryAdvice, NamesTheTwoMildestChangesThatFit) {
  const ExecResources resources = make_exec_resources(Device{}, 1);
  const ExecContext& ctx = resources.context;
  const TrainConfig config = some_config();
  const auto takes = [&](const std::vector<std::string>& settings) { return total(ctx, config, settings); };
  const auto said = [](const std::string& text, int64_t bytes) {
    return text + " takes " + format_bytes(static_cast<double>(bytes));
  };
  const int64_t six = takes({"micro_batch=6"}), layers = takes({"recompute.groups=[1]"});
  EXPECT_EQ(memory_advice(ctx, config, std::max(six, layers)),
            said("micro_batch=6", six) + "; or " + said("recompute.groups=[1]", layers));
  EXPECT_EQ(memory_advice(ctx, config, {}),
            said("micro_batch=6", six) + "; or " + said("recompute.groups=[1]", layers));
  // Less: smaller micro-batches fit, and layers that are computed again in groups.
  const int64_t two = takes({"micro_batch=2"}), groups = takes({"recompute.groups=[3,1]"});
  ASSERT_LT(std::max(two, groups), std::min(takes({"micro_batch=3"}), layers));
  const std::string less = memory_advice(ctx, config, std::max(two, groups));
  EXPECT_EQ(less, said("micro_batch=2", two) + "; or " + said("recompute.groups=[3,1]", groups));
  // Nothing fits: everything together.
  const std::string none = memory_advice(ctx, config, 1);
  for (const char* part : {"micro_batch=1 takes ", "; with it, recompute.groups=[3,1] takes ",
                           "; with it, data.length=16 takes ", ", still too much; a smaller model is needed"})
    EXPECT_NE(none.find(part), none.npos) << none;
}

TEST(MemoryAdvice, WhatTheArenaHoldsIsThereForTheRun) {
  const ExecResources resources = make_exec_resources(Device{}, 1);
  const auto before = available_memory(resources.context);
  if (!before) GTEST_SKIP() << "the system does not tell how much memory is left";
  constexpr int64_t kBytes = int64_t{64} << 20;
  const Tensor held = Tensor::zeros(*resources.arena, {kBytes}, DType::u8);
  const double there = static_cast<double>(*available_memory(resources.context));
  EXPECT_EQ(resources.arena->stats().total, kBytes);
  EXPECT_LE(static_cast<double>(*available_memory()), there - static_cast<double>(kBytes) * 0.9);
}

using AutoTest = testing::RunTest;

// The predictions are those of the test; what is there is what the machine says.
TEST_F(AutoTest, TakesTheWholeBatchWhereItFits) {
  config.micro_batch = kAuto;
  config.steps = 4;
  run(options("run"));
  const Json written = Json::parse(read_file(directory / "run" / "config.json"));
  EXPECT_EQ(written.at("micro_batch").as_int(), config.batch);
}

// A run that goes on keeps the micro-batch that it began with, and so its bits.
TEST_F(AutoTest, GoesOnAsItBegan) {
  config.micro_batch = 1;
  config.steps = 20;
  const RunOptions o = options("run");
  config.optimizer.schedule = ScheduleKind::constant;
  run(options("whole"));
  config.steps = 8;
  run(o);
  config.micro_batch = kAuto;
  config.steps = 20;
  run(o);
  EXPECT_EQ(Json::parse(read_file(o.out / "config.json")).at("micro_batch").as_int(), 1);
  EXPECT_EQ(testing::final_state(o.out), testing::final_state(directory / "whole"));
}

TEST_F(AutoTest, SaysSoWhereNotEvenOneRowFits) {
  TrainConfig huge = some_config();
  huge.micro_batch = kAuto;
  huge.model.dim = 1 << 16, huge.model.heads = huge.model.kv_heads = 512;
  huge.model.ffn_dim = huge.model.head_dim = 0;
  huge.model.layers = 512;
  const std::string said =
      testing::error_of(ErrorCode::kOutOfMemory, [&] { settle_micro_batch(resources.context, derive(huge), {}); });
  for (const char* part : {"micro_batch=auto: one row takes ", "more than 90 % of the ", "a smaller model is needed"})
    EXPECT_NE(said.find(part), said.npos) << said;
}

}  // namespace
}  // namespace loam
