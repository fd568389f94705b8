#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>

#include "loam/base/hash.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/plot.h"
#include "loam/train/run_directory.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/sanitizers.h"
#include "tests/train/run_testing.h"

namespace loam {
namespace {

using testing::tiny_config;

using RunTest = testing::RunTest;
using testing::curve_of;
using testing::final_state;
using testing::records_of;

TEST_F(RunTest, LeavesEverythingThatIsPromised) {
  config.sample_every = 20;
  RunOptions o = options("run");
  o.version = "1.2.3";
  o.command_line = {"loam", "train"};
  o.sample = [](const Model& model) { return fmt::format("{} layers", model.config().layers); };
  const RunSummary summary = run(o);
  EXPECT_EQ(summary.steps, 40);
  EXPECT_FALSE(summary.interrupted);
  TrainConfig read;
  config_from_json(read, Json::parse(read_file(o.out / "config.json")));
  config.dtype = ComputeDtype::f32;  // auto on the CPU
  EXPECT_TRUE(config_diff(config_to_json(read), config_to_json(derive(config))).empty());
  EXPECT_EQ(records_of(o.out, "train").size(), 40u);
  EXPECT_EQ(records_of(o.out, "val").size(), 2u);
  EXPECT_EQ(records_of(o.out, "sample").size(), 2u);
  EXPECT_EQ(records_of(o.out, "sample")[0].at("text").as_string(), "2 layers");
  EXPECT_EQ(records_of(o.out, "start")[0].at("version").as_string(), "1.2.3");
  EXPECT_EQ(records_of(o.out, "train")[0].at("lr").as_double(), 0);
  EXPECT_EQ(CheckpointStore(o.out / "checkpoints").list().size(), 2u);
  const Json state = read_checkpoint_state(CheckpointStore(o.out / "checkpoints").newest_complete()->path);
  EXPECT_EQ(state.at("extra").at("command").as_array().size(), 2u);
  EXPECT_EQ(state.at("threads").as_int(), 1);
  EXPECT_EQ(read_file(o.out / "model" / "tokenizer.json"), "{\"a tokenizer\": true}");
  const Model model = load_model(resources.context, o.out / "model", DType::f32);
  EXPECT_EQ(model.config().layers, 2);
  if (gnuplot_available()) {
    EXPECT_TRUE(read_file(o.out / "loss.png").starts_with("\x89PNG"));
  }
}

TEST_F(RunTest, ASecondCallFindsNothingLeftToDo) {
  config.sample_every = 20;
  RunOptions o = options("run");
  o.sample = [](const Model&) { return std::string("x"); };
  run(o);
  const std::string before = final_state(o.out), metrics = read_file(o.out / "metrics.jsonl");
  const auto entries = [&] {
    return std::distance(std::filesystem::directory_iterator(o.out), std::filesystem::directory_iterator());
  };
  const auto count = entries();
  const Path written = o.out / "model" / "config.json", theirs = o.out / "model" / "README.md";
  const auto time_of = [](const Path& path) { return std::filesystem::last_write_time(path); };
  const auto time = time_of(written);
  write_file_atomic(theirs, "x");
  EXPECT_EQ(run(o).steps, 40);
  EXPECT_EQ(final_state(o.out), before);
  EXPECT_EQ(read_file(o.out / "metrics.jsonl"), metrics);
  EXPECT_EQ(entries(), count);
  EXPECT_EQ(time_of(written), time);

  // A model that is older than the last checkpoint is one of a stop before it.
  const Path manifest = CheckpointStore(o.out / "checkpoints").newest_complete()->path / "MANIFEST.json";
  std::filesystem::last_write_time(written, time_of(manifest) - std::chrono::seconds(1));
  run(o);
  EXPECT_GE(time_of(written), time_of(manifest));
  EXPECT_TRUE(std::filesystem::exists(theirs));  // what others put beside the model stays
  std::filesystem::remove_all(o.out / "model");
  run(o);
  EXPECT_TRUE(std::filesystem::exists(o.out / "model" / "model.safetensors"));
  // A validation that a kill cut off is due.
  std::string without;
  for (size_t begin = 0; begin < metrics.size();) {
    const size_t end = metrics.find('\n', begin) + 1;
    const std::string line = metrics.substr(begin, end - begin);
    if (line.find("\"val\"") == line.npos) without += line;
    begin = end;
  }
  write_file_atomic(o.out / "metrics.jsonl", without);
  run(o);
  EXPECT_EQ(records_of(o.out, "val").size(), 1u);
}

TEST_F(RunTest, InterruptedAndResumedIsTheSameRun) {
  run(options("whole"));
  for (const int64_t stop : {1, 10, 27}) {
    config.sample_every = 1;
    RunOptions o = options(fmt::format("stopped-{}", stop));
    int64_t step = 0;
    o.sample = [&](const Model&) {
      if (++step == stop) request_interrupt();
      return std::string("x");
    };
    const RunSummary first = run(o);
    EXPECT_TRUE(first.interrupted);
    EXPECT_EQ(first.steps, stop);
    EXPECT_TRUE(std::filesystem::exists(o.out / "model" / "model.safetensors"));
    clear_interrupt();
    EXPECT_FALSE(run(o).interrupted);
    EXPECT_EQ(final_state(o.out), final_state(directory / "whole"));
    EXPECT_EQ(curve_of(o.out), curve_of(directory / "whole")) << "stopped after " << stop;
    const auto train = records_of(o.out, "train");
    for (size_t i = 1; i < train.size(); ++i) {
      EXPECT_GE(train[i].at("time").as_double(), train[i - 1].at("time").as_double());
    }
  }
}

TEST_F(RunTest, WhatIsInterruptedBeforeItsFirstStepHasNoModel) {
  run(options("whole"));
  const RunOptions o = options("run");
  request_interrupt();
  const RunSummary nothing = run(o);
  EXPECT_TRUE(nothing.interrupted);
  EXPECT_FALSE(nothing.has_model);
  EXPECT_EQ(nothing.steps, 0);
  EXPECT_FALSE(std::filesystem::exists(o.out / "model"));
  clear_interrupt();
  EXPECT_TRUE(run(o).has_model);
  EXPECT_EQ(final_state(o.out), final_state(directory / "whole"));
  EXPECT_TRUE(std::filesystem::exists(o.out / "model" / "model.safetensors"));
}

TEST_F(RunTest, AFullDiskDuringASaveLeavesTheLastGoodCheckpoint) {
  run(options("whole"));
  ASSERT_NE(::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit unlimited;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  config.sample_every = 1;
  RunOptions o = options("full");
  int64_t step = 0;
  o.sample = [&](const Model&) {
    // From step 15 on no file may grow beyond 20 kB: metrics can be written, a checkpoint cannot.
    rlimit small = unlimited;
    small.rlim_cur = 20000;
    if (++step == 15) ::setrlimit(RLIMIT_FSIZE, &small);
    return std::string("x");
  };
  const std::string said = testing::error_of(ErrorCode::kIo, [&] { run(o); });
  for (const char* part : {"model.safetensors: cannot write: File too large", "the state after step 20 is not saved",
                           "The last good checkpoint is ", "step-00000010"}) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  const auto newest = CheckpointStore(o.out / "checkpoints").newest_complete();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, 10);
  run(o);
  EXPECT_EQ(final_state(o.out), final_state(directory / "whole"));
  EXPECT_EQ(curve_of(o.out), curve_of(directory / "whole"));
}

TEST_F(RunTest, ACurveThatIsLostIsSaid) {
  const RunOptions o = options("run");
  const auto resumed = [&](int64_t steps) {
    config.optimizer.schedule = ScheduleKind::constant;
    config.steps = steps;
    set_log_level(LogLevel::kWarn);
    ::testing::internal::CaptureStderr();
    run(o);
    set_log_level(LogLevel::kError);
    return ::testing::internal::GetCapturedStderr();
  };
  resumed(5);
  EXPECT_EQ(resumed(6).find("metrics.jsonl"), std::string::npos);
  std::filesystem::resize_file(o.out / "metrics.jsonl", 0);
  // Two starts, six steps and the validation after the fifth; that after the sixth came when it had been saved.
  EXPECT_NE(resumed(7).find("metrics.jsonl: 9 of 9 records up to step 6 are missing"), std::string::npos);
  EXPECT_EQ(resumed(8).find("metrics.jsonl"), std::string::npos);
  std::filesystem::remove(o.out / "metrics.jsonl");
  EXPECT_NE(resumed(9).find("metrics.jsonl: missing: what the run said of its first 8 steps"), std::string::npos);
}

TEST_F(RunTest, ATornCheckpointIsPassedOver) {
  run(options("whole"));
  RunOptions o = options("torn");
  run(o);
  std::filesystem::remove(CheckpointStore(o.out / "checkpoints").newest_complete()->path / "MANIFEST.json");
  run(o);
  EXPECT_EQ(final_state(o.out), final_state(directory / "whole"));
}

TEST_F(RunTest, ALossThatIsNoNumberStopsTheRun) {
  config.optimizer.lr = 3e38;  // the first step takes the weights to the end of f32
  config.optimizer.warmup_steps = 0;
  const RunOptions o = options("diverged");
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kInvalidArgument, "step 2 (samples 4 to 7)");
  ASSERT_EQ(records_of(o.out, "stopped").size(), 1u);
  EXPECT_EQ(records_of(o.out, "stopped")[0].at("first_sample").as_int(), 4);
  EXPECT_EQ(records_of(o.out, "stopped")[0].at("step").as_int(), 1);
  EXPECT_EQ(records_of(o.out, "train").size(), 1u);
  // What the first step made of the weights is not kept, and the same command comes to the same end.
  EXPECT_EQ(final_state(o.out), "none");
  EXPECT_FALSE(std::filesystem::exists(o.out / "model"));
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kInvalidArgument, "There is no checkpoint yet");
  config.save_every = 1;
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kInvalidArgument, "step-00000001 may have the fault already");
  // A run that ends there sees it in the validation.
  config.steps = 1;
  config.optimizer.schedule = ScheduleKind::constant;
  EXPECT_LOAM_ERROR(run(options("short")), ErrorCode::kInvalidArgument, "the validation loss is nan");
}

// Whatever the number of steps: there is no twenty in a row here.
TEST_F(RunTest, AShortRunWhoseLastStepsChangeNothingFails) {
  config.optimizer.lr = 1e30;  // losses stay numbers, gradients do not
  config.optimizer.warmup_steps = 0;
  config.optimizer.clip_norm = 0;
  config.val_every = 0;
  for (const int64_t steps : {4, 15}) {
    config.steps = steps;
    const RunOptions o = options(fmt::format("run-{}", steps));
    EXPECT_LOAM_ERROR(run(o), ErrorCode::kInvalidArgument,
                      fmt::format("{} steps in a row changed nothing: the gradient is not finite", steps - 1));
    EXPECT_EQ(records_of(o.out, "stopped").size(), 1u);
    EXPECT_EQ(final_state(o.out), "none");
    EXPECT_FALSE(std::filesystem::exists(o.out / "model"));
  }
}

TEST_F(RunTest, ARunThatLearnsNothingAtAllFails) {
  std::filesystem::remove_all(directory / "data");
  testing::write_set(directory / "data" / "train", std::vector<std::vector<int32_t>>(500, {5}));  // nothing to predict
  config.steps = 3;
  EXPECT_LOAM_ERROR(run(options("idle")), ErrorCode::kInvalidArgument, "3 steps in a row changed nothing");
}

TEST_F(RunTest, DataThatAreCutWhileInUseLeaveACheckpointOfWhatWasTrained) {
  std::filesystem::remove_all(directory / "data" / "train");
  testing::write_set(directory / "data" / "train", testing::documents(1000, 1));
  config.sample_every = 1;
  RunOptions o = options("cut");
  o.sample = [&](const Model&) {
    std::filesystem::resize_file(directory / "data" / "train" / "shard-00000.tok", 4096);
    return std::string("x");
  };
  const std::string said = testing::error_of(ErrorCode::kIo, [&] { run(o); });
  EXPECT_NE(said.find("shard-00000.tok: it was cut"), std::string::npos) << said;
  EXPECT_NE(said.find("what was trained is in "), std::string::npos) << said;
  const auto newest = CheckpointStore(o.out / "checkpoints").newest_complete();
  ASSERT_TRUE(newest);
  EXPECT_GE(newest->step, 1);
  EXPECT_LT(newest->step, 10);
}

TEST_F(RunTest, ACheckSaysWhatARunWouldAndWritesNothing) {
  RunOptions o = options("run");
  const auto check = [&] { return check_run(config, o); };
  EXPECT_FALSE(check().checkpoint);
  config.model.vocab_size = 60;
  EXPECT_LOAM_ERROR(check(), ErrorCode::kInvalidArgument, "model.vocab_size is 60");
  config.model.vocab_size = 64;
  config.data.length = config.model.context_length = 100'000;
  EXPECT_LOAM_ERROR(check(), ErrorCode::kInvalidArgument, "fewer than one row");
  EXPECT_FALSE(std::filesystem::exists(o.out));
  write_file_atomic(o.out, "x");
  EXPECT_LOAM_ERROR(check(), ErrorCode::kAlreadyExists, "is not a directory");
}

TEST_F(RunTest, StepsThatChangeNothingStopTheRun) {
  std::filesystem::remove_all(directory / "data");
  testing::write_set(directory / "data" / "train", std::vector<std::vector<int32_t>>(500, {5}));  // nothing to predict
  config.save_every = 100;
  const RunOptions o = options("idle");
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kInvalidArgument, "20 steps in a row changed nothing");
  ASSERT_EQ(records_of(o.out, "stopped").size(), 1u);
  EXPECT_EQ(records_of(o.out, "stopped")[0].at("step").as_int(), 20);
  EXPECT_TRUE(final_state(o.out).starts_with("20 "));
}

// Steps that change nothing after one that ruined the weights: none of them is saved, and what was saved before stays.
TEST_F(RunTest, ADivergingRunKeepsWhatWasGood) {
  config.steps = 20;
  config.save_every = 5;
  RunOptions o = options("run");
  run(o);
  config.steps = 100;
  config.optimizer.lr = 1e9;
  config.optimizer.clip_norm = 0;
  o = options("run");
  o.allow_changed_config = true;
  const std::string said = testing::error_of(ErrorCode::kInvalidArgument, [&] { run(o); });
  EXPECT_NE(said.find("step-000000"), std::string::npos) << said;
  const CheckpointStore store(o.out / "checkpoints");
  EXPECT_LE(store.newest_complete()->step, 21);
  EXPECT_TRUE(std::filesystem::exists(o.out / "checkpoints" / "step-00000020"));
}

TEST_F(RunTest, ARunWithAnUnknownSettingIsNamedAsSuch) {
  RunOptions o = options("run");
  run(o);
  Json json = Json::parse(read_file(o.out / "config.json"));
  json["invented"] = 1;
  write_file_atomic(o.out / "config.json", json.dump());
  const std::string said = testing::error_of(ErrorCode::kBadFormat, [&] { run(o); });
  EXPECT_NE(said.find("run/config.json: "), std::string::npos) << said;
  EXPECT_NE(said.find("invented"), std::string::npos) << said;
  o.resume = RunOptions::Resume::never;
  EXPECT_THROW(run(o), Error);
  o.force = true;
  EXPECT_EQ(run(o).steps, 40);
}

TEST_F(RunTest, NothingIsOverwrittenUnlessForced) {
  std::filesystem::create_directory(directory / "foreign");
  write_file_atomic(directory / "foreign" / "thesis.txt", "mine");
  EXPECT_LOAM_ERROR(run(options("foreign")), ErrorCode::kAlreadyExists, "holds no run of loam");
  EXPECT_EQ(read_file(directory / "foreign" / "thesis.txt"), "mine");

  RunOptions o = options("run");
  run(o);
  const std::string before = final_state(o.out);
  o.resume = RunOptions::Resume::never;
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kAlreadyExists, "--force");
  config.seed = 5;
  EXPECT_LOAM_ERROR(run(options("run")), ErrorCode::kInvalidArgument, "seed: 1 -> 5");
  EXPECT_EQ(final_state(o.out), before);
  o.force = true;
  run(o);
  EXPECT_NE(final_state(o.out), before);
  EXPECT_EQ(records_of(o.out, "train").size(), 40u);
}

TEST_F(RunTest, ADamagedConfigurationIsNamed) {
  const RunOptions o = options("run");
  run(o);
  const std::string before = final_state(o.out), config_json = read_file(o.out / "config.json");
  const std::pair<std::string, const char*> kCases[] = {
      {config_json.substr(0, config_json.size() / 2), "config.json: byte "},
      {"", "config.json: byte 0: "},
      {"[]", "config.json: it has no object \"model\""},
      {"{\"model\": {}}", "config.json: it has no object \"optimizer\""},
  };
  for (const auto& [text, reason] : kCases) {
    write_file_atomic(o.out / "config.json", text);
    EXPECT_LOAM_ERROR(run(o), ErrorCode::kAlreadyExists, reason);
  }
  std::filesystem::remove(o.out / "config.json");
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kAlreadyExists, "there is no config.json");
  EXPECT_EQ(final_state(o.out), before);
}

// Files of something else that happen to be called as a run's are.
TEST_F(RunTest, AForeignDirectoryIsLeftAlone) {
  const RunOptions o = options("project");
  std::filesystem::create_directories(o.out / "model");
  write_file_atomic(o.out / "config.json", "{\"model_type\": \"llama\"}");
  write_file_atomic(o.out / "model" / "weights.txt", "precious");
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kAlreadyExists, "holds no run of loam");
  EXPECT_EQ(read_file(o.out / "config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_EQ(read_file(o.out / "model" / "weights.txt"), "precious");
}

TEST_F(RunTest, WithoutAWholeCheckpointItDoesNotStartAgainInSilence) {
  const RunOptions o = options("run");
  run(o);
  for (const CheckpointInfo& info : CheckpointStore(o.out / "checkpoints").list()) {
    write_file_atomic(info.path / "MANIFEST.json", "{");
  }
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kBadFormat, "no checkpoint is complete");
  EXPECT_EQ(records_of(o.out, "train").size(), 40u);
}

TEST_F(RunTest, ASampleThatFailsDoesNotEndTheRun) {
  config.sample_every = 20;
  RunOptions o = options("run");
  o.sample = [](const Model&) -> std::string { fail(ErrorCode::kInvalidArgument, "no room in the context"); };
  EXPECT_EQ(run(o).steps, 40);
  EXPECT_TRUE(records_of(o.out, "sample").empty());
}

TEST_F(RunTest, AModelThatNoOtherFamilyHoldsIsWrittenInTheOwnForm) {
  config.model.gated = false;  // with RMSNorm and rotary positions
  const RunOptions o = options("run");
  run(o);
  EXPECT_EQ(Json::parse(read_file(o.out / "model" / "config.json")).at("model_type").as_string(), "loam");
  const ExecResources exec = make_exec_resources(Device{}, 1);
  EXPECT_FALSE(load_model(exec.context, o.out / "model", DType::f32).config().gated);
}

// The checkpoint named by a link or a relative path is still one of the directory's own.
TEST_F(RunTest, ForceKeepsTheCheckpointItStartsFrom) {
  RunOptions o = options("run");
  run(o);
  const Path first = CheckpointStore(o.out / "checkpoints").list().front().path;
  std::filesystem::create_directory_symlink(first, directory / "link");
  o.resume_from = directory / "link";
  o.force = true;
  EXPECT_EQ(run(o).steps, 40);
  EXPECT_TRUE(std::filesystem::exists(first / "MANIFEST.json"));
  EXPECT_EQ(records_of(o.out, "train").size(), 40u);
}

TEST_F(RunTest, ResumesFromAGivenCheckpoint) {
  RunOptions o = options("run");
  run(o);
  const std::string whole = final_state(o.out), curve = curve_of(o.out);
  o.resume_from = o.out / "checkpoints" / "step-00000030/";
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kAlreadyExists, "later checkpoints");
  o.force = true;
  run(o);
  EXPECT_EQ(final_state(o.out), whole);
  EXPECT_EQ(curve_of(o.out), curve);

  RunOptions elsewhere = options("branch");
  elsewhere.resume_from = o.out / "checkpoints" / "step-00000030";
  run(elsewhere);
  EXPECT_EQ(final_state(elsewhere.out), whole);
  EXPECT_EQ(records_of(elsewhere.out, "train").size(), 10u);
  elsewhere.resume_from = o.out / "nowhere";
  EXPECT_LOAM_ERROR(run(elsewhere), ErrorCode::kNotFound, "nowhere");

  RunOptions finished = options("finished");
  finished.resume_from = o.out / "checkpoints" / "step-00000040";
  EXPECT_TRUE(run(finished).has_model);
  EXPECT_EQ(final_state(finished.out), whole);
  EXPECT_EQ(read_file(finished.out / "model/model.safetensors"), read_file(o.out / "model/model.safetensors"));
  finished.resume_from.reset();
  run(finished);  // nothing is left to do
}

TEST_F(RunTest, ASecondRunIsRefusedBeforeItLooks) {
  const RunOptions o = options("run");
  write_file_atomic(directory / "file", "x");
  {
    const RunLock held(o.out);
    // Files that are no run's: whoever looked first would say so.
    write_file_atomic(o.out / "thesis.txt", "mine");
    EXPECT_LOAM_ERROR(run(o), ErrorCode::kAlreadyExists, "another process is training there");
    EXPECT_LOAM_ERROR(RunLock(o.out), ErrorCode::kAlreadyExists, "another process is training there");
    EXPECT_TRUE(std::filesystem::exists(o.out / ".lock"));
    std::filesystem::remove(o.out / "thesis.txt");
  }
  EXPECT_FALSE(std::filesystem::exists(o.out));  // made by the lock, gone with it
  EXPECT_LOAM_ERROR(run(options("file")), ErrorCode::kAlreadyExists, "is not a directory");
  EXPECT_LOAM_ERROR(run(options("file/run")), ErrorCode::kIo, "cannot make the directory");
  run(o);
  EXPECT_FALSE(std::filesystem::exists(o.out / ".lock"));
}

TEST_F(RunTest, ARefusedRunLeavesNothing) {
  config.model.vocab_size = 60;
  EXPECT_THROW(run(options("a/b/c")), Error);
  EXPECT_FALSE(std::filesystem::exists(directory / "a"));
  std::filesystem::create_directory(directory / "mine");
  EXPECT_THROW(run(options("mine/run")), Error);
  EXPECT_TRUE(std::filesystem::is_empty(directory / "mine"));
}

TEST_F(RunTest, ASummaryOfNothingHasNoNumbers) {
  const RunOptions o = options("run");
  const RunSummary first = run(o);
  EXPECT_EQ(*first.final_loss, records_of(o.out, "train").back().at("loss").as_double());
  EXPECT_EQ(*first.final_val_loss, records_of(o.out, "val").back().at("loss").as_double());
  EXPECT_TRUE(first.tokens_per_second);
  const RunSummary again = run(o);
  EXPECT_FALSE(again.final_loss);
  EXPECT_FALSE(again.final_val_loss);
  EXPECT_FALSE(again.tokens_per_second);
  EXPECT_EQ(Json(again.final_loss).dump(), "null");
}

TEST_F(RunTest, AnInterruptEndsAValidationWhichIsMadeOnResume) {
  config.micro_batch = 1;
  run(options("whole"));
  config.sample_every = 19;
  RunOptions o = options("stopped");
  o.sample = [&](const Model&) {
    request_interrupt();  // before the step after which a validation is due
    return std::string("x");
  };
  const RunSummary first = run(o);
  EXPECT_TRUE(first.interrupted);
  EXPECT_EQ(first.steps, 19);
  clear_interrupt();
  o.sample = {};
  EXPECT_FALSE(run(o).interrupted);
  EXPECT_EQ(curve_of(o.out), curve_of(directory / "whole"));
}

TEST_F(RunTest, SaysWhatIsWrongWithTheDataBeforeWriting) {
  config.data.path = (directory / "no-such-data").string();
  EXPECT_LOAM_ERROR(run(options("run")), ErrorCode::kNotFound, "loam data tokenize");
  config.data.path = (directory / "data").string();
  config.model.vocab_size = 60;
  EXPECT_LOAM_ERROR(run(options("run")), ErrorCode::kInvalidArgument, "model.vocab_size is 60");
  EXPECT_FALSE(std::filesystem::exists(directory / "run"));
}

}  // namespace
}  // namespace loam
