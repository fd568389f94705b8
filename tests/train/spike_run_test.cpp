// Runs whose data hold a batch of noise: what the spike detector makes of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "tests/harness/expect_error.h"
#include "tests/train/run_testing.h"

namespace loam {
namespace {

using testing::curve_of;
using testing::final_state;
using testing::records_of;

constexpr int64_t kSteps = 100, kBatch = 4, kNoisyBatch = 80;

class SpikeRunTest : public testing::RunTest {
 protected:
  SpikeRunTest() {
    config.steps = kSteps;
    config.batch = kBatch;
    config.data.shuffle = false;
    config.save_every = 7;
    config.val_every = 0;
    config.spikes.action = SpikeAction::rewind;
    config.spikes.window = 32;
    config.spikes.threshold = 10;
    config.model.context_length = 24;
    write_rows("data", {});
  }

  // Each row is one document, so that no row knows of the ones beside it.
  std::vector<int32_t> row(int64_t index) const {
    const auto seed = static_cast<uint64_t>(index) + 1;
    return index / kBatch == kNoisyBatch ? testing::make_noise(24, seed) : testing::make_document(24, seed);
  }
  void write_rows(const std::string& name, const std::vector<int64_t>& left_out_batches) {
    std::vector<std::vector<int32_t>> rows;
    for (int64_t i = 0; i < 130 * kBatch; ++i) {
      if (std::count(left_out_batches.begin(), left_out_batches.end(), i / kBatch) == 0) rows.push_back(row(i));
    }
    std::filesystem::remove_all(directory / name);
    testing::write_set(directory / name / "train", rows);
  }
  Json state_of(const Path& run) const {
    return read_checkpoint_state(CheckpointStore(run / "checkpoints").newest_complete()->path);
  }
};

// The newest checkpoint before the noise is that of step 77.
TEST_F(SpikeRunTest, ARewindEndsAsARunOnDataWithoutTheseBatches) {
  const RunOptions o = options("rewound");
  run(o);
  const auto rewinds = records_of(o.out, "rewind");
  ASSERT_EQ(rewinds.size(), 1u) << Json(Json::Array(rewinds)).dump();
  EXPECT_EQ(rewinds[0].at("step").as_int(), 77);
  EXPECT_EQ(rewinds[0].at("spike_step").as_int(), kNoisyBatch + 1);
  EXPECT_EQ(rewinds[0].at("left_out"), Json(Json::Array{77, 81}));
  EXPECT_EQ(state_of(o.out).at("left_out"), Json(Json::Array{Json::Array{77, 81}}));
  EXPECT_EQ(state_of(o.out).at("samples").as_int(), (kSteps + 4) * kBatch);
  const auto train = records_of(o.out, "train");
  ASSERT_EQ(train.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < train.size(); ++i) EXPECT_EQ(train[i].at("step").as_int(), static_cast<int64_t>(i) + 1);

  write_rows("clean", {77, 78, 79, 80});
  config.data.path = (directory / "clean").string();
  config.spikes.action = SpikeAction::off;
  const RunOptions clean = options("clean-run");
  run(clean);
  EXPECT_EQ(final_state(o.out), final_state(clean.out));
  EXPECT_EQ(curve_of(o.out), curve_of(clean.out));
}

TEST_F(SpikeRunTest, TheDumpHoldsTheBatch) {
  RunOptions o = options("run");
  o.decode = [](std::span<const int32_t> ids) { return fmt::format("{} tokens", ids.size()); };
  run(o);
  const Json dump = Json::parse(read_file(o.out / "dumps" / "step-81.json"));
  EXPECT_EQ(dump.at("step").as_int(), 81);
  EXPECT_EQ(dump.at("first_sample").as_int(), kNoisyBatch * kBatch);
  const Json::Array& rows = dump.at("rows").as_array();
  ASSERT_EQ(rows.size(), static_cast<size_t>(kBatch));
  double total = 0;
  int64_t targets = 0;
  for (int64_t r = 0; r < kBatch; ++r) {
    const Json& found = rows[static_cast<size_t>(r)];
    const int64_t sample = kNoisyBatch * kBatch + r;
    EXPECT_EQ(found.at("sample").as_int(), sample);
    Json ids = Json::array();
    for (const int32_t id : row(sample)) ids.push_back(int64_t{id});
    EXPECT_EQ(found.at("ids"), ids);
    EXPECT_EQ(found.at("text").as_string(), "24 tokens");
    total += found.at("loss").as_double() * found.at("targets").as_double();
    targets += found.at("targets").as_int();
  }
  EXPECT_EQ(targets, kBatch * 23);  // all but the token after a document's end
  EXPECT_NEAR(total / static_cast<double>(targets), dump.at("loss").as_double(), 1e-9);
  EXPECT_EQ(dump.at("loss"), records_of(o.out, "rewind")[0].at("loss"));
  EXPECT_GT(dump.at("grad_norm").as_double(), 0);
  // A cosine from 1e-2 to a tenth of it over 95 steps, of which 75 are done.
  EXPECT_NEAR(dump.at("lr").as_double(), 1e-3 + 9e-3 * (1 + std::cos(M_PI * 75 / 95)) / 2, 1e-9);
}

TEST_F(SpikeRunTest, StoppedAnywhereItResumesBitForBit) {
  run(options("whole"));
  config.sample_every = 1;
  for (const int64_t stop : {76, 80, 82}) {
    RunOptions o = options(fmt::format("stopped-{}", stop));
    int64_t count = 0;
    o.sample = [&](const Model&) {
      if (++count == stop) request_interrupt();
      return std::string("x");
    };
    EXPECT_TRUE(run(o).interrupted);
    clear_interrupt();
    o.sample = [](const Model&) { return std::string("x"); };
    EXPECT_FALSE(run(o).interrupted);
    EXPECT_EQ(final_state(o.out), final_state(directory / "whole")) << "stopped after sample " << stop;
    EXPECT_EQ(curve_of(o.out), curve_of(directory / "whole"));
    EXPECT_EQ(records_of(o.out, "rewind").size(), 1u);
  }
}

// A kill between the checkpoint of a rewind and its line leaves a state that says more than the metrics.
TEST_F(SpikeRunTest, ARewindWithoutItsLineGetsIt) {
  config.steps = 84;
  config.optimizer.schedule = ScheduleKind::constant;
  const RunOptions o = options("run");
  run(o);
  std::string kept;
  LineReader lines(open_input(o.out / "metrics.jsonl"));
  for (std::string line; lines.next(line);) {
    if (line.find("\"rewind\"") == line.npos) kept += line + "\n";
  }
  write_file_atomic(o.out / "metrics.jsonl", kept);
  config.steps = 90;
  run(o);
  ASSERT_EQ(records_of(o.out, "rewind").size(), 1u);
  EXPECT_EQ(records_of(o.out, "rewind")[0].at("spike_step").as_int(), kNoisyBatch + 1);
}

TEST_F(SpikeRunTest, SkippingLeavesTheWeightsAsTheyWere) {
  config.spikes.action = SpikeAction::skip;
  config.save_every = 1;
  config.keep_last = kSteps;
  const RunOptions o = options("run");
  run(o);
  const auto weights = [&](int64_t step) {
    return hash_hex(read_file(o.out / "checkpoints" / fmt::format("step-{:08}", step) / "model.safetensors"));
  };
  EXPECT_EQ(weights(80), weights(81));
  EXPECT_NE(weights(79), weights(80));
  EXPECT_NE(weights(81), weights(82));
  EXPECT_EQ(state_of(o.out).at("updates").as_int(), kSteps - 1);
  EXPECT_EQ(state_of(o.out).at("samples").as_int(), kSteps * kBatch);
  const auto spikes = records_of(o.out, "spike");
  ASSERT_EQ(spikes.size(), 1u);
  EXPECT_EQ(spikes[0].at("step").as_int(), 81);
  EXPECT_TRUE(spikes[0].at("skipped").as_bool());
  // What is remembered of the losses goes on with the run.
  RunOptions resumed = options("resumed");
  resumed.resume_from = o.out / "checkpoints" / "step-00000070";
  run(resumed);
  EXPECT_EQ(final_state(resumed.out), final_state(o.out));
}

TEST_F(SpikeRunTest, AWarningChangesNothing) {
  config.spikes.action = SpikeAction::off;
  run(options("off"));
  config.spikes.action = SpikeAction::warn;
  const RunOptions o = options("warned");
  run(o);
  EXPECT_EQ(final_state(o.out), final_state(directory / "off"));
  ASSERT_EQ(records_of(o.out, "spike").size(), 1u);
  EXPECT_EQ(records_of(o.out, "spike")[0].at("step").as_int(), 81);
  EXPECT_EQ(records_of(o.out, "spike")[0].at("first_sample").as_int(), kNoisyBatch * kBatch);
  EXPECT_TRUE(std::filesystem::exists(o.out / "dumps" / "step-81.json"));
  EXPECT_FALSE(std::filesystem::exists(directory / "off" / "dumps"));
}

// The first step ruins the weights, whatever the batch.
TEST_F(SpikeRunTest, RewindsAreBounded) {
  config.optimizer.lr = 3e38;
  config.optimizer.warmup_steps = 0;
  config.spikes.max_rewinds = 3;
  const RunOptions o = options("run");
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kInvalidArgument, "after 3 rewinds (spikes.max_rewinds)");
  EXPECT_EQ(records_of(o.out, "rewind").size(), 3u);
  EXPECT_EQ(records_of(o.out, "stopped")[0].at("reason").as_string(), "too many spikes");
  EXPECT_EQ(state_of(o.out).at("step").as_int(), 0);
  EXPECT_EQ(state_of(o.out).at("left_out"), Json(Json::Array{Json::Array{0, 6}}));
  EXPECT_TRUE(std::filesystem::exists(o.out / "dumps" / "step-2.json"));
  EXPECT_EQ(Json::parse(read_file(o.out / "dumps" / "step-2.json")).at("loss").as_string(), "nan");
  EXPECT_TRUE(std::filesystem::exists(o.out / "dumps" / "step-2-sample-12.json"));
  // The same command comes to the same end at once.
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kInvalidArgument, "after 3 rewinds");
}

// Without the detector, too, a batch whose loss is no number is dumped; and losses that are none cannot be skipped for
// ever.
TEST_F(SpikeRunTest, LossesThatAreNoNumbers) {
  config.optimizer.lr = 3e38;
  config.optimizer.warmup_steps = 0;
  config.spikes.action = SpikeAction::off;
  const RunOptions off = options("off"), skipping = options("skip");
  EXPECT_LOAM_ERROR(run(off), ErrorCode::kInvalidArgument, "step 2 (samples 4 to 7): the loss is nan");
  const Json dump = Json::parse(read_file(off.out / "dumps" / "step-2.json"));
  EXPECT_EQ(dump.at("rows").as_array().size(), static_cast<size_t>(kBatch));
  config.spikes.action = SpikeAction::skip;
  EXPECT_LOAM_ERROR(run(skipping), ErrorCode::kInvalidArgument, "20 steps in a row changed nothing");
  EXPECT_EQ(records_of(skipping.out, "spike").size(), 20u);
}

// The checkpoint to go back to was damaged: the one before it serves.
TEST_F(SpikeRunTest, ATornTargetIsPassedOver) {
  config.keep_last = 5;
  config.sample_every = 1;
  RunOptions o = options("run");
  int64_t count = 0;
  o.sample = [&](const Model&) {
    if (++count == 79) std::filesystem::remove(o.out / "checkpoints" / "step-00000077" / "state.json");
    return std::string("x");
  };
  run(o);
  ASSERT_EQ(records_of(o.out, "rewind").size(), 1u);
  EXPECT_EQ(records_of(o.out, "rewind")[0].at("step").as_int(), 70);
}

TEST_F(SpikeRunTest, SettingsThatOnlyWarnMayChange) {
  config.steps = 10;
  config.optimizer.schedule = ScheduleKind::constant;
  config.spikes.action = SpikeAction::off;
  run(options("run"));
  config.spikes.action = SpikeAction::warn;
  config.spikes.window = 16;
  config.steps = 12;
  run(options("run"));
  config.spikes.action = SpikeAction::skip;
  config.steps = 14;
  EXPECT_LOAM_ERROR(run(options("run")), ErrorCode::kInvalidArgument, "spikes.action: \"warn\" -> \"skip\"");
}

// Noise shortly after the mixture has changed: the rewind goes back to step 77, before the change at step 79, and the
// run goes on behind the noise, in the mixture that holds there.
class MixtureSpikeTest : public SpikeRunTest {
 protected:
  static constexpr int64_t kBack = 77, kChange = 79;

  MixtureSpikeTest() { config.sample_every = 1; }

  static std::vector<int32_t> row_of(char source, int64_t index, bool noisy = false) {
    const auto seed = static_cast<uint64_t>(1000 * source + index);
    return noisy ? testing::make_noise(24, seed) : testing::make_document(24, seed);
  }
  // Sources a and b. Two rows of each, from these on, are noise.
  void write_sources(int64_t noise_in_a, int64_t noise_in_b) {
    for (const auto& [source, noise] : {std::pair{'a', noise_in_a}, {'b', noise_in_b}}) {
      std::vector<std::vector<int32_t>> rows;
      for (int64_t i = 0; i < 400; ++i) rows.push_back(row_of(source, i, i == noise || i == noise + 1));
      testing::write_set(directory / std::string(1, source) / "train", rows);
    }
  }
  void read(std::vector<std::pair<char, double>> weights) {
    config.data.path.clear();
    config.data.sources.clear();
    for (const auto& [source, weight] : weights) {
      const std::string name(1, source);
      config.data.sources.push_back({name, (directory / name).string(), weight});
    }
  }
  // What a run ends with that reads, without any of this, what is left: the rows of a up to step 77, then by turns
  // those of a and b from these on.
  std::string plain(int64_t from_a, int64_t from_b) {
    std::vector<std::vector<int32_t>> rows;
    for (int64_t i = 0; i < kBack * kBatch; ++i) rows.push_back(row_of('a', i));
    for (int64_t i = 0; i < (kSteps - kBack) * kBatch; ++i)
      rows.push_back(i % 2 == 0 ? row_of('a', from_a + i / 2) : row_of('b', from_b + i / 2));
    rows.push_back(row_of('a', 0));  // the last token is no row's first
    testing::write_set(directory / "plain" / "train", rows);
    const TrainConfig before = config;
    config.data = {};
    config.data.shuffle = false;
    config.data.path = (directory / "plain").string();
    config.spikes.action = SpikeAction::off;
    run(options("plain-run"));
    config = before;
    return end_of("plain-run");
  }
  std::string end_of(const std::string& name) const {
    return final_state(directory / name) + "\n" + curve_of(directory / name);
  }

  static std::function<std::string(const Model&)> at_sample(int64_t number, std::function<void()> act) {
    return [=, count = int64_t{0}](const Model&) mutable {
      if (++count == number) act();
      return std::string("x");
    };
  }
  // Ends at the sample of that number, by an interrupt or as a process that is killed.
  void stop(RunOptions o, int64_t sample, bool kill) {
    if (!kill) {
      o.sample = at_sample(sample, request_interrupt);
      EXPECT_TRUE(run(o).interrupted);
      return clear_interrupt();
    }
    const pid_t child = ::fork();
    if (child == 0) {
      o.sample = at_sample(sample, [] { ::raise(SIGKILL); });
      run(o);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  void finish(RunOptions o, const std::string& expected) {
    o.sample = at_sample(0, {});
    EXPECT_FALSE(run(o).interrupted);
    const auto rewinds = records_of(o.out, "rewind");
    ASSERT_EQ(rewinds.size(), 1u);
    EXPECT_EQ(rewinds[0].at("step").as_int(), kBack);
    EXPECT_EQ(rewinds[0].at("left_out"), Json(Json::Array{kBack, kNoisyBatch + 1}));
    EXPECT_EQ(end_of(o.out.filename().string()), expected);
  }
};

// A step of stage 2 takes two rows of each source: batch 79 is rows 316 and 317 of a and 0 and 1 of b, the noise
// behind.
TEST_F(MixtureSpikeTest, ARewindAcrossTheBeginOfAStage) {
  write_sources(318, 2);
  read({{'a', 1}, {'b', 1}});
  config.data.stages = {{0, {1, 0}}, {static_cast<double>(kChange) / kSteps, {1, 1}}};
  const std::string expected = plain(320, 4);
  finish(options("whole"), expected);
  for (const bool kill : {false, true}) {
    for (const int64_t sample : {76, 78, 79, 80, 82, 86}) {  // of them 81 and on are those of steps behind the rewind
      SCOPED_TRACE(fmt::format("{} at sample {}", kill ? "killed" : "stopped", sample));
      const RunOptions o = options(fmt::format("{}-{}", kill ? "killed" : "stopped", sample));
      stop(o, sample, kill);
      finish(o, expected);
    }
  }
}

// The same rows where b is new in the run's second life.
TEST_F(MixtureSpikeTest, ARewindAcrossAChangeOfSources) {
  write_sources(318, 2);
  read({{'a', 1}});
  const std::string expected = plain(320, 4);
  for (const bool kill : {false, true}) {
    for (const int64_t sample : {0, 1, 3}) {  // 0: none; of the second life
      SCOPED_TRACE(fmt::format("{} at sample {}", kill ? "killed" : "stopped", sample));
      RunOptions o = options(fmt::format("{}-{}", kill ? "killed" : "stopped", sample));
      read({{'a', 1}});
      stop(o, kChange, false);
      read({{'a', 1}, {'b', 1}});
      o.allow_changed_config = true;
      if (sample > 0) stop(o, sample, kill);
      finish(o, expected);
    }
  }
}

// A branch has the new weights from its first step on: batches 77 to 79 are rows 308 to 313 of a and 0 to 5 of b.
TEST_F(MixtureSpikeTest, ARewindToTheBeginOfABranch) {
  write_sources(314, 6);
  read({{'a', 1}});
  const std::string expected = plain(316, 8);
  stop(options("base"), kBack, false);
  const std::string trunk = curve_of(directory / "base");
  read({{'a', 1}, {'b', 1}});
  for (const bool kill : {false, true}) {
    for (const int64_t sample : {0, 2, 5}) {
      SCOPED_TRACE(fmt::format("{} at sample {}", kill ? "killed" : "stopped", sample));
      RunOptions o = options(fmt::format("{}-{}", kill ? "killed" : "stopped", sample));
      o.branch = directory / "base" / "checkpoints" / "step-00000077";
      o.allow_changed_config = true;
      if (sample > 0) stop(o, sample, kill);
      o.sample = at_sample(0, {});
      EXPECT_FALSE(run(o).interrupted);
      EXPECT_EQ(records_of(o.out, "rewind").size(), 1u);
      EXPECT_EQ(final_state(o.out) + "\n" + trunk + curve_of(o.out), expected);
    }
  }
}

}  // namespace
}  // namespace loam
