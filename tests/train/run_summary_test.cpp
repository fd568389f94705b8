#include "loam/train/run_summary.h"

#include <gtest/gtest.h>

#include "tests/harness/expect_error.h"
#include "tests/train/run_testing.h"

namespace loam {
namespace {

class RunSummaryTest : public ::testing::Test {
 protected:
  // A run of 40 steps that was written by hand.
  Path write_run(const std::string& name, const std::string& lr, const std::vector<std::string>& lines,
                 bool model = false) {
    const Path run = directory / "runs" / name;
    std::filesystem::create_directories(run);
    write_file_atomic(run / "config.json",
                      R"({"model": {"dim": 32}, "optimizer": {"lr": )" + lr + R"(}, "steps": 40})");
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    write_file_atomic(run / "metrics.jsonl", text);
    if (model) std::filesystem::create_directory(run / "model");
    return run;
  }
  static std::string start() { return R"({"kind":"start","step":0,"time":0,"parameters":1234,"tokens_per_step":100})"; }
  static std::string train(int64_t step, const std::string& loss) {
    return fmt::format(R"({{"kind":"train","step":{0},"time":{0}.5,"tokens":{0}00,"loss":{1},"lr":0.1,"mfu":null}})",
                       step, loss);
  }
  static std::string val(int64_t step, const std::string& loss) {
    return fmt::format(R"({{"kind":"val","step":{},"time":9,"loss":{},"bits_per_byte":1.5}})", step, loss);
  }
  testing::TempDir directory;
};

TEST_F(RunSummaryTest, ReadsWhatTheLinesSay) {
  const Path path = write_run(
      "a", "0.1",
      {start(), train(1, "4"), val(20, "2"), "{\"kind\": \"tr", train(30, "3"), val(30, "2.5"), train(40, "2")}, true);
  const RunInfo run = read_run(path);
  EXPECT_EQ(run.status, "finished");
  EXPECT_EQ(run.step, 40);
  EXPECT_EQ(run.steps, 40);
  EXPECT_EQ(*run.parameters, 1234);
  EXPECT_EQ(*run.tokens, 4000);
  EXPECT_EQ(*run.loss, 2);
  EXPECT_EQ(*run.val_loss, 2.5);
  EXPECT_EQ(*run.best_val_loss, 2);
  EXPECT_EQ(run.seconds, 40.5);
  EXPECT_EQ(run.id, "");
  EXPECT_FALSE(run.tokens_per_second);
}

TEST_F(RunSummaryTest, StatusIsThatOfLockLinesAndModel) {
  EXPECT_EQ(read_run(write_run("a", "1", {start(), train(40, "1")})).status, "interrupted");  // no model yet
  EXPECT_EQ(read_run(write_run("b", "1", {start(), train(7, "1")}, true)).status, "interrupted");
  const Path stopped = write_run("c", "1", {start(), R"({"kind":"stopped","step":7,"time":1,"reason":"x"})"});
  EXPECT_EQ(read_run(stopped).status, "stopped");
  EXPECT_EQ(read_run(write_run("d", "1", {})).step, 0);
  {
    const RunLock lock(stopped);
    EXPECT_EQ(read_run(stopped).status, "running");
    EXPECT_EQ(read_run(stopped).status, "running");  // looking takes no lock away
  }
  EXPECT_EQ(read_run(stopped).status, "stopped");
}

TEST_F(RunSummaryTest, FindsRunsAndRunsBelow) {
  write_run("b", "1", {});
  write_run("a", "1", {});
  std::filesystem::create_directories(directory / "runs" / "other");
  write_file_atomic(directory / "runs" / "other" / "config.json", "{\"model_type\": \"llama\"}");
  const auto names = [](const std::vector<Path>& paths) {
    std::string list;
    for (const Path& path : paths) list += path.filename().string() + " ";
    return list;
  };
  EXPECT_EQ(names(find_runs({(directory / "runs").string()})), "a b ");
  EXPECT_EQ(names(find_runs({(directory / "runs" / "b").string(), (directory / "runs").string()})), "b a b ");
  EXPECT_LOAM_ERROR(find_runs({(directory / "none").string()}), ErrorCode::kNotFound, "none");
  EXPECT_LOAM_ERROR(read_run(directory / "runs" / "other"), ErrorCode::kNotFound, "not the directory of a run");
}

TEST_F(RunSummaryTest, ComparesSettingsAndEqualSteps) {
  const RunInfo a = read_run(write_run("a", "0.1", {start(), val(10, "3"), val(20, "2"), val(30, "1")}));
  const RunInfo b = read_run(write_run("b", "0.2", {start(), val(10, "4"), val(20, "5"), val(25, "6")}));
  const auto settings = differing_settings({a, b});
  ASSERT_EQ(settings.size(), 1u);
  EXPECT_EQ(settings[0].first, "optimizer.lr");
  EXPECT_EQ(settings[0].second[1].as_double(), 0.2);
  EXPECT_EQ(*last_common_step({a, b}, "val"), 20);
  EXPECT_EQ(*number_at(b, "val", 20, "loss"), 5);
  EXPECT_FALSE(last_common_step({a, b}, "train"));
  EXPECT_FALSE(number_at(b, "val", 30, "loss"));
}

TEST_F(RunSummaryTest, CurvesOverStepsTokensAndTime) {
  const RunInfo run = read_run(
      write_run("a", "1", {start(), train(1, "4"), train(2, "null"), train(3, "2"), train(4, "0"), val(2, "7")}));
  using Points = std::vector<std::pair<double, double>>;
  EXPECT_EQ(curve_of(run, PlotAxis::step, "loss", 1), (Points{{1, 4}, {3, 2}, {4, 0}}));
  EXPECT_EQ(curve_of(run, PlotAxis::tokens, "loss", 2), (Points{{100, 4}, {300, 3}, {400, 1}}));
  EXPECT_EQ(curve_of(run, PlotAxis::time, "loss", 100), (Points{{1.5, 4}, {3.5, 3}, {4.5, 2}}));
  EXPECT_EQ(curve_of(run, PlotAxis::tokens, "val", 1), (Points{{200, 7}}));
  EXPECT_EQ(curve_of(run, PlotAxis::step, "bits_per_byte", 1), (Points{{2, 1.5}}));
  EXPECT_TRUE(curve_of(run, PlotAxis::step, "mfu", 1).empty());
  EXPECT_LOAM_ERROR(curve_of(run, PlotAxis::step, "los", 1), ErrorCode::kInvalidArgument,
                    "have no \"los\"; there are: bits_per_byte, loss, lr, tokens, val");
}

// With several sets the first one counts.
TEST_F(RunSummaryTest, SeveralValidationSets) {
  const auto of_set = [](int64_t step, const char* set, double loss) {
    return fmt::format(R"({{"kind":"val","step":{},"time":1,"set":"{}","loss":{}}})", step, set, loss);
  };
  const RunInfo run = read_run(write_run(
      "a", "1", {start(), of_set(5, "text", 3), of_set(5, "code", 1), of_set(9, "text", 2), of_set(9, "code", 4)}));
  EXPECT_EQ(*run.val_loss, 2);
  EXPECT_EQ(*run.best_val_loss, 2);
  EXPECT_EQ(*number_at(run, "val", 5, "loss"), 3);
  using Points = std::vector<std::pair<double, double>>;
  EXPECT_EQ(curve_of(run, PlotAxis::step, "val", 1), (Points{{5, 3}, {9, 2}}));
  EXPECT_EQ(curve_of(run, PlotAxis::step, "val/code", 1), (Points{{5, 1}, {9, 4}}));
  EXPECT_LOAM_ERROR(curve_of(run, PlotAxis::step, "val/x", 1), ErrorCode::kInvalidArgument, "val/code, val/text");
}

}  // namespace
}  // namespace loam
