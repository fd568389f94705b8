// Steps whose results the host reads late, as it does with a GPU. A stream that runs what it gets at once and gives
// nothing back before it is asked shows on the CPU what depends on the order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "loam/kernels/kernel_table.h"
#include "loam/train/trainer.h"
#include "tests/harness/expect_error.h"
#include "tests/train/run_testing.h"

namespace loam {
namespace {

using testing::curve_of;
using testing::final_state;
using testing::records_of;

class HostStream : public DeviceHandles {
 public:
  void synchronize() override {}
  void upload(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, static_cast<size_t>(bytes)); }
  std::unique_ptr<Download> download(const void* from, int64_t bytes) override {
    ++downloads;
    if (after_download) after_download();
    return std::make_unique<Copy>(from, bytes, waits);
  }
  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    return std::make_unique<Again>(work, replays);
  }

  int64_t mark() override { return 0; }
  double seconds_between(int64_t, int64_t) override { return 0; }
  void clear_marks() override {}

  int downloads = 0, waits = 0, replays = 0;
  std::function<void()> after_download;

 private:
  struct Copy : Download {
    Copy(const void* from, int64_t n, int& w) : bytes(static_cast<size_t>(n)), waits(w) {
      std::memcpy(bytes.data(), from, bytes.size());
    }
    const void* wait() override {
      ++waits;
      return bytes.data();
    }
    std::vector<std::byte> bytes;
    int& waits;
  };
  struct Again : Recording {
    Again(std::function<void()> w, int& r) : work(std::move(w)), replays(r) {}
    void replay() override {
      ++replays;
      work();
    }
    std::function<void()> work;
    int& replays;
  };
};

// Losses or gradients of the batch that begins with a certain sample are made wrong.
int64_t bad_loss = -1, bad_gradient = -1;
const KernelTable& faulty_kernels() {
  static KernelTable table = cpu_kernel_table();
  table.cross_entropy_rows.function = [](const ExecContext& ctx, const CrossEntropyRowsArgs& a) {
    cpu_kernel_table().cross_entropy_rows(ctx, a);
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    if (ctx.step && a.write_gradient && ctx.step->first_sample == bad_loss) a.loss.ptr<float>()[0] = kNaN;
    if (ctx.step && a.write_gradient && ctx.step->first_sample == bad_gradient) a.logits.ptr<float>()[0] = kNaN;
  };
  return table;
}

class AheadTest : public testing::RunTest {
 protected:
  AheadTest() {
    config.log_every = 7;
    config.optimizer.warmup_steps = 0;
    ahead.kernels = resources.context.kernels = &faulty_kernels();
    ahead.handles = &stream;
    bad_loss = bad_gradient = -1;
  }

  Trainer trainer(const ExecContext& ctx) {
    const auto set = [&](const char* name) { return std::make_shared<TokenSet>(directory / "data" / name); };
    return {ctx, derive(config), set("train"), set("val")};
  }
  std::string state_of(Trainer& trainer) {
    CheckpointStore store(directory / fmt::format("state-{}", ++saved));
    const Path path = trainer.save(store, {});
    return fmt::format("{} {} {} {}", read_checkpoint_state(path).dump(), trainer.steps_done(),
                       hash_hex(read_file(path / "model.safetensors")),
                       hash_hex(read_file(path / "optimizer.safetensors")));
  }
  RunSummary run_ahead(const std::string& name) { return run_training(ahead, config, options(name)); }

  HostStream stream;
  ExecContext ahead = resources.context;
  int saved = 0;
};

void expect_equal(const StepResult& a, const StepResult& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.targets, b.targets);
  EXPECT_EQ(a.learning_rate, b.learning_rate);
  EXPECT_EQ(a.skipped, b.skipped);
  EXPECT_EQ(a.abandoned, b.abandoned);
  EXPECT_EQ(a.overflow, b.overflow);
  EXPECT_EQ(a.loss_scale, b.loss_scale);
  ASSERT_EQ(a.loss.has_value(), b.loss.has_value());
  if (!a.loss) return;
  if (std::isfinite(*b.loss)) {
    EXPECT_EQ(*a.loss, *b.loss);
  }
  if (std::isfinite(*b.grad_norm)) {
    EXPECT_EQ(*a.grad_norm, *b.grad_norm);
  }
  EXPECT_EQ(to_json(a.layers).dump(), to_json(b.layers).dump());
}

TEST_F(AheadTest, ResultsComeLateAndAreThoseOfStepsThatAreWaitedFor) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::muon}) {
    config.optimizer.kind = kind;
    config.optimizer.momentum = kind == OptimizerKind::sgd ? 0.9 : 0;
    config.detail_every = 4;
    stream.replays = stream.waits = 0;
    Trainer plain = trainer(resources.context), late = trainer(ahead);
    for (int64_t step = 1; step <= 10; ++step) {
      late.launch();
      EXPECT_EQ(late.steps_launched(), step);
      const std::optional<StepResult> result = late.next_result(false);
      if (step == 1) {
        EXPECT_FALSE(result);
        EXPECT_EQ(stream.waits, 0);
        continue;
      }
      ASSERT_TRUE(result);
      expect_equal(*result, plain.step());
      EXPECT_EQ(late.steps_done(), step - 1);
      EXPECT_EQ(late.describe_rows({}).dump(), plain.describe_rows({}).dump());
      EXPECT_FALSE(late.next_result(false));
    }
    EXPECT_LOAM_ERROR(state_of(late), ErrorCode::kInvalidArgument, "steps are under way");
    expect_equal(*late.next_result(true), plain.step());
    EXPECT_FALSE(late.next_result(true));
    EXPECT_EQ(stream.replays, 7);  // all but the first and those with details
    EXPECT_EQ(state_of(late), state_of(plain));
  }
}

TEST_F(AheadTest, NoMoreThanTwoStepsAreUnderWay) {
  Trainer late = trainer(ahead);
  late.launch();
  late.launch();
  EXPECT_LOAM_ERROR(late.launch(), ErrorCode::kInvalidArgument, "results");
  EXPECT_LOAM_ERROR(late.step(), ErrorCode::kInvalidArgument, "results");
  Trainer plain = trainer(resources.context);
  plain.launch();
  EXPECT_LOAM_ERROR(plain.launch(), ErrorCode::kInvalidArgument, "results");
}

TEST_F(AheadTest, WhatIsLaunchedBehindALossThatIsNoNumberChangesNothing) {
  Trainer plain = trainer(resources.context), late = trainer(ahead);
  for (int i = 0; i < 3; ++i) expect_equal(late.step(), plain.step());
  const std::string before = state_of(plain);
  bad_loss = plain.first_sample(4);
  late.launch();
  late.launch();
  const std::optional<StepResult> result = late.next_result(false);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->abandoned);
  EXPECT_TRUE(std::isnan(*result->loss));
  EXPECT_EQ(result->step, 3);
  EXPECT_FALSE(late.next_result(true));
  EXPECT_EQ(state_of(late), before);
  EXPECT_TRUE(plain.step().abandoned);
  EXPECT_EQ(state_of(plain), before);
  // The same step comes next, and the fault is gone.
  bad_loss = -1;
  for (int i = 0; i < 3; ++i) expect_equal(late.step(), plain.step());
  EXPECT_EQ(state_of(late), state_of(plain));
}

TEST_F(AheadTest, UpdatesAndTheLossScaleAreKeptWhereTheStepIs) {
  for (const ComputeDtype dtype : {ComputeDtype::f32, ComputeDtype::fp16}) {
    config.dtype = dtype;
    Trainer plain = trainer(resources.context), late = trainer(ahead);
    bad_gradient = plain.first_sample(3);
    late.launch();
    for (int64_t step = 2; step <= 6; ++step) {
      late.launch();
      const std::optional<StepResult> result = late.next_result(false);
      ASSERT_TRUE(result);
      EXPECT_EQ(result->skipped, result->step == 3);
      EXPECT_EQ(result->overflow, result->step == 3 && dtype == ComputeDtype::fp16);
      expect_equal(*result, plain.step());
    }
    expect_equal(*late.next_result(true), plain.step());
    CheckpointStore store(directory / fmt::format("counted-{}", static_cast<int>(dtype)));
    const Json state = read_checkpoint_state(late.save(store, {}));
    EXPECT_EQ(state.at("updates").as_int(), 5);
    if (dtype == ComputeDtype::fp16) {
      EXPECT_EQ(state.at("loss_scale").at("scale").as_double(), 32768);
    }
    EXPECT_EQ(state_of(late), state_of(plain));
  }
}

TEST_F(AheadTest, ARunIsTheSameRun) {
  config.val_every = 12;
  config.detail_every = 5;
  run(options("plain"));
  run_ahead("ahead");
  EXPECT_EQ(final_state(directory / "ahead"), final_state(directory / "plain"));
  EXPECT_EQ(curve_of(directory / "ahead"), curve_of(directory / "plain"));
  const auto layers = [&](const char* name) {
    std::string all;
    for (const Json& r : records_of(directory / name, "layers")) {
      all += fmt::format("{} {}\n", r.at("step").as_int(), r.at("layers").dump());
    }
    return all;
  };
  EXPECT_EQ(layers("ahead"), layers("plain"));
  // Waiting for a step is waiting for two copies.
  EXPECT_EQ(stream.waits, 2 * config.steps);
}

TEST_F(AheadTest, AnInterruptFinishesWhatIsUnderWay) {
  run(options("whole"));
  for (const int stop : {2, 7, 23}) {
    const std::string name = fmt::format("stopped-{}", stop);
    stream.downloads = 0;
    stream.after_download = [&] {
      if (stream.downloads == 2 * stop) request_interrupt();
    };
    const RunSummary first = run_ahead(name);
    EXPECT_TRUE(first.interrupted);
    EXPECT_EQ(first.steps, stop);
    clear_interrupt();
    EXPECT_FALSE(run_ahead(name).interrupted);
    EXPECT_EQ(final_state(directory / name), final_state(directory / "whole"));
    EXPECT_EQ(curve_of(directory / name), curve_of(directory / "whole")) << "stopped after " << stop;
  }
}

TEST_F(AheadTest, AStopNamesItsStepAndKeepsWhatWasGood) {
  config.data.shuffle = false;
  config.save_every = 5;
  bad_loss = 12 * config.batch;  // of step 13
  const std::string said = testing::error_of(ErrorCode::kInvalidArgument, [&] { run(options("plain")); });
  EXPECT_NE(said.find("step 13 (samples 48 to 51)"), std::string::npos) << said;
  EXPECT_NE(said.find("plain/checkpoints/step-00000010"), std::string::npos) << said;
  std::string late = testing::error_of(ErrorCode::kInvalidArgument, [&] { run_ahead("ahead"); });
  late.replace(late.find("/ahead/"), 7, "/plain/");
  EXPECT_EQ(late, said);
  EXPECT_EQ(final_state(directory / "ahead"), final_state(directory / "plain"));
  ASSERT_EQ(records_of(directory / "ahead", "stopped").size(), 1u);
  EXPECT_EQ(records_of(directory / "ahead", "stopped")[0].at("step").as_int(), 12);
  EXPECT_TRUE(std::filesystem::exists(directory / "ahead" / "dumps" / "step-13.json"));
  EXPECT_EQ(read_file(directory / "ahead" / "dumps" / "step-13.json"),
            read_file(directory / "plain" / "dumps" / "step-13.json"));
}

TEST_F(AheadTest, TwentyStepsWithoutAnEffectAreTheSameTwenty) {
  config.optimizer.lr = 1e30;  // losses stay numbers, gradients do not
  config.optimizer.clip_norm = 0;
  config.log_every = config.val_every = config.save_every = 100;
  config.steps = 60;
  const std::string said = testing::error_of(ErrorCode::kInvalidArgument, [&] { run(options("plain")); });
  EXPECT_NE(said.find("20 steps in a row changed nothing"), std::string::npos) << said;
  EXPECT_EQ(testing::error_of(ErrorCode::kInvalidArgument, [&] { run_ahead("ahead"); }), said);
  EXPECT_EQ(records_of(directory / "ahead", "stopped")[0].at("step").as_int(),
            records_of(directory / "plain", "stopped")[0].at("step").as_int());
}

TEST_F(AheadTest, AnErrorOfTheHostKeepsWhatIsUnderWay) {
  std::filesystem::remove_all(directory / "data" / "train");
  testing::write_set(directory / "data" / "train", testing::documents(1000, 1));
  config.log_every = 100;
  stream.after_download = [&] {
    if (stream.downloads == 6) {
      std::filesystem::resize_file(directory / "data" / "train" / "shard-00000.tok", 4096);
    }
  };
  const std::string said = testing::error_of(ErrorCode::kIo, [&] { run_ahead("cut"); });
  EXPECT_NE(said.find("what was trained is in "), std::string::npos) << said;
  const auto newest = CheckpointStore(directory / "cut" / "checkpoints").newest_complete();
  ASSERT_TRUE(newest);
  EXPECT_EQ(2 * newest->step, stream.downloads);
}

TEST_F(AheadTest, SpikesThatAreActedOnAreNotRunAhead) {
  for (const SpikeAction action : {SpikeAction::skip, SpikeAction::rewind}) {
    config.spikes.action = action;
    Trainer plain = trainer(resources.context), late = trainer(ahead);
    for (int i = 0; i < 4; ++i) {
      late.launch();
      const std::optional<StepResult> result = late.next_result(false);
      ASSERT_TRUE(result);
      expect_equal(*result, plain.step());
    }
    EXPECT_EQ(state_of(late), state_of(plain));
  }
  EXPECT_EQ(stream.downloads, 0);
}

}  // namespace
}  // namespace loam
