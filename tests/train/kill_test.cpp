// `loam train` as a process: killed at random moments, stopped by signals, on its command line.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "loam/base/clock.h"
#include "loam/base/hash.h"
#include "loam/base/philox.h"
#include "loam/format/checkpoint.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

void sleep_seconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

class Process {
 public:
  explicit Process(std::vector<std::string> words, const Path& log) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
      ::dup2(file, 1);
      ::dup2(file, 2);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  void send(int signal) const { ::kill(pid_, signal); }
  // As a shell says it: the exit status, or 128 + the signal.
  int wait() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

class ProcessTest : public ::testing::Test {
 protected:
  ProcessTest() {
    testing::write_data(directory / "data");
    TrainConfig config = testing::tiny_config();
    config.steps = 300;
    config.save_every = 10;
    config.val_every = 50;
    write_file_atomic(directory / "config.json", config_to_json(config).dump());
  }
  std::vector<std::string> command(const std::string& out, std::vector<std::string> more = {}) {
    std::vector<std::string> words{LOAM_BINARY, "train",
                                   "--config",  (directory / "config.json").string(),
                                   "--data",    (directory / "data").string(),
                                   "--out",     (directory / out).string(),
                                   "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Process start(const std::string& out, std::vector<std::string> more = {}) {
    return Process(command(out, std::move(more)), directory / "log");
  }
  std::string log() const {
    return std::filesystem::exists(directory / "log") ? read_file(directory / "log") : std::string();
  }
  std::string final_state(const std::string& out) const {
    const auto newest = CheckpointStore(directory / out / "checkpoints").newest_complete();
    if (!newest) return "none";
    return fmt::format("{} {} {}", newest->step, hash_hex(read_file(newest->path / "model.safetensors")),
                       hash_hex(read_file(newest->path / "optimizer.safetensors")));
  }
  // Step and numbers of every line of a kind, in order.
  std::vector<std::string> curve(const std::string& out, const std::string& kind) const {
    std::vector<std::string> points;
    LineReader lines(open_input(directory / out / "metrics.jsonl"));
    for (std::string line; lines.next(line);) {
      const Json record = Json::parse(line);
      if (record.at("kind").as_string() != kind) continue;
      points.push_back(fmt::format("{} {}", record.at("step").as_int(), record.at("loss").dump()));
      if (const Json* norm = record.find("grad_norm")) points.back() += " " + norm->dump();
    }
    return points;
  }
  int64_t count_of(const std::string& out, const std::string& kind) const {
    int64_t count = 0;
    LineReader lines(open_input(directory / out / "metrics.jsonl"));
    for (std::string line; lines.next(line);) count += Json::parse(line).at("kind").as_string() == kind;
    return count;
  }
  std::vector<int64_t> checkpoints(const std::string& out) const {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info : CheckpointStore(directory / out / "checkpoints").list())
      steps.push_back(info.step);
    return steps;
  }
  void kill_and_compare(int kills, std::vector<std::string> flags);
  std::vector<std::string> trustful_flags();
  // Until the program has said `words`, at most 60 s.
  void wait_for_log(const std::string& words) const {
    const Stopwatch watch;
    while (log().find(words) == std::string::npos && watch.seconds() < 60) sleep_seconds(0.01);
  }
  // Until the run has a checkpoint, at most 60 s.
  void wait_for_checkpoint(const std::string& out) const {
    const Stopwatch watch;
    while (CheckpointStore(directory / out / "checkpoints").list().empty() && watch.seconds() < 60) sleep_seconds(0.01);
  }

  testing::TempDir directory;
};

// Saves all the time, so that many kills fall into a save. A life is counted from where training begins, so that even
// on a busy machine it gets on.
void ProcessTest::kill_and_compare(int kills, std::vector<std::string> flags) {
  const char* given = std::getenv("LOAM_SEED");
  const auto seed = given ? std::stoull(given) : static_cast<uint64_t>(::time(nullptr));
  SCOPED_TRACE(fmt::format("LOAM_SEED={} kills at these moments", seed));
  for (const char* flag : {"--save-every", "3"}) flags.push_back(flag);
  const Stopwatch watch;
  ASSERT_EQ(start("whole", flags).wait(), 0) << log();
  const double whole = watch.seconds();
  const PhiloxStream random{seed, 5};
  int killed = 0, resumed = 0;
  for (int i = 0; i < kills; ++i) {
    std::filesystem::remove(directory / "log");
    const Process process = start("killed", flags);
    wait_for_log("parameters");
    const double moment = whole / kills * static_cast<double>(random.uniform(static_cast<uint64_t>(i)));
    SCOPED_TRACE(fmt::format("killed after {} s", moment));
    sleep_seconds(moment);
    process.send(SIGKILL);
    const int status = process.wait();
    ASSERT_TRUE(status == 128 + SIGKILL || status == 0) << log();
    killed += status != 0;
    resumed += log().find("going on after step") != std::string::npos;
  }
  EXPECT_GE(killed, kills / 2);  // else the test showed nothing
  EXPECT_GE(resumed, kills / 4);
  ASSERT_EQ(start("killed", flags).wait(), 0) << log();
  EXPECT_EQ(final_state("killed"), final_state("whole"));
  EXPECT_EQ(curve("killed", "train"), curve("whole", "train"));
  EXPECT_EQ(curve("killed", "val"), curve("whole", "val"));
  EXPECT_EQ(curve("whole", "train").size(), 300u);
  EXPECT_EQ(curve("whole", "val").size(), 6u);
  const auto model = [&](const char* run) { return read_file(directory / run / "model" / "model.safetensors"); };
  EXPECT_EQ(hash_hex(model("killed")), hash_hex(model("whole")));
  EXPECT_EQ(checkpoints("killed"), checkpoints("whole"));
}

TEST_F(ProcessTest, KilledAtRandomMomentsAndResumedEndsTheSame) { kill_and_compare(20, {}); }

// Two batches of noise, each of which makes the run go back; checkpoints are kept for three reasons, layers looked at.
std::vector<std::string> ProcessTest::trustful_flags() {
  std::filesystem::remove_all(directory / "data" / "train");
  std::vector<std::vector<int32_t>> rows;
  for (uint64_t i = 0; i < 1400; ++i) {
    const bool noisy = i / 4 == 120 || i / 4 == 200;
    rows.push_back(noisy ? testing::make_noise(24, i + 1) : testing::make_document(24, i + 1));
  }
  testing::write_set(directory / "data" / "train", rows);
  std::vector<std::string> flags{"--keep-every", "70", "--keep-last", "2"};
  for (const char* setting : {"spikes.action=rewind", "spikes.window=32", "spikes.threshold=10", "data.shuffle=false",
                              "keep_best=true", "detail_every=10"}) {
    flags.push_back("--set");
    flags.push_back(setting);
  }
  return flags;
}

TEST_F(ProcessTest, KilledAroundRewindsItEndsTheSame) {
  kill_and_compare(10, trustful_flags());
  EXPECT_GE(count_of("whole", "rewind"), 2);
  EXPECT_EQ(count_of("killed", "rewind"), count_of("whole", "rewind"));
  EXPECT_EQ(count_of("killed", "layers"), 30);
  const auto best = [&](const char* run) { return read_file(directory / run / "checkpoints" / "best.json"); };
  EXPECT_EQ(best("killed"), best("whole"));
}

TEST_F(ProcessTest, FiftyKillsInEveryMode) {
  if (!std::getenv("LOAM_SLOW")) GTEST_SKIP() << "LOAM_SLOW=1 runs it";
  kill_and_compare(50, {});
  for (const char* run : {"whole", "killed"}) std::filesystem::remove_all(directory / run);
  kill_and_compare(50, trustful_flags());
  EXPECT_EQ(count_of("killed", "rewind"), count_of("whole", "rewind"));
}

TEST_F(ProcessTest, FirstSignalSavesAndSecondQuits) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string out = fmt::format("signal-{}", signal);
    const Process process = start(out, {"--steps", "1000000", "--save-every", "5"});
    wait_for_checkpoint(out);
    process.send(signal);
    EXPECT_EQ(process.wait(), 0) << log();
    EXPECT_TRUE(std::filesystem::exists(directory / out / "model" / "config.json"));
    EXPECT_NE(log().find("the same command goes on from there"), std::string::npos) << log();
  }
  // Two that come before the program can do anything about the first. Which of them it sees first is up to the system.
  const Process process = start("twice", {"--steps", "1000000", "--save-every", "1"});
  wait_for_checkpoint("twice");
  process.send(SIGINT);
  process.send(SIGTERM);
  const int status = process.wait();
  EXPECT_TRUE(status == 128 + SIGINT || status == 128 + SIGTERM) << status << log();
  EXPECT_NE(final_state("twice"), "none");
}

// A step of ten thousand micro-batches: the answer comes at once, and the checkpoint is that of the step before.
TEST_F(ProcessTest, ALongStepIsGivenUp) {
  const std::vector<std::string> flags{"--steps", "100", "--batch", "200000", "--micro-batch", "2"};
  const Process process = start("long", flags);
  wait_for_log("parameters");
  sleep_seconds(0.1);
  process.send(SIGTERM);
  EXPECT_EQ(process.wait(), 0) << log();
  EXPECT_NE(log().find("interrupted: stopping after this step"), std::string::npos) << log();
  EXPECT_NE(log().find("step 1 is given up"), std::string::npos) << log();
  EXPECT_NE(log().find("nothing was trained"), std::string::npos) << log();
  EXPECT_FALSE(std::filesystem::exists(directory / "long" / "model"));
}

TEST_F(ProcessTest, WrongUsageIsOneErrorAndStatusTwo) {
  EXPECT_EQ(start("run", {"--stepps", "3"}).wait(), 2);
  EXPECT_NE(log().find("error: unknown flag --stepps; did you mean --steps?"), std::string::npos) << log();
  EXPECT_EQ(start("run", {"--set", "optimizer.lrr=3"}).wait(), 2);
  EXPECT_NE(log().find("optimizer.lr"), std::string::npos) << log();
  EXPECT_EQ(start("run", {"--steps", "many"}).wait(), 2);
  EXPECT_FALSE(std::filesystem::exists(directory / "run"));
}

TEST_F(ProcessTest, DryRunSaysWhetherItFits) {
  EXPECT_EQ(start("run", {"--dry-run"}).wait(), 0) << log();
  EXPECT_NE(log().find("fits"), std::string::npos) << log();
  EXPECT_EQ(
      start("run", {"--dry-run", "--set", "model.layers=64", "--set", "model.dim=16384", "--set", "model.heads=128"})
          .wait(),
      1)
      << log();
  EXPECT_NE(log().find("does not fit"), std::string::npos) << log();
  EXPECT_FALSE(std::filesystem::exists(directory / "run"));
}

}  // namespace
}  // namespace loam
