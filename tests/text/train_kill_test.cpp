// `loam tokenizer train` as a process: killed at random moments, stopped by a signal, and its command line.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "loam/base/clock.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

void sleep_seconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

class TrainProcess : public ::testing::Test {
 protected:
  TrainProcess() {
    const std::vector<std::string> parts = {"low ", "lower ", "newest ", "wide", "st ", "é ", "\n", "1", "23 ", "'s "};
    for (int file = 0; file < 3; ++file) {
      std::string lines;
      for (uint64_t i = 0; i < 120; ++i) {
        Json line;
        line["text"] = testing::random_text(parts, 2000, 1000 * static_cast<uint64_t>(file) + i);
        lines += line.dump() + "\n";
      }
      write_file_atomic(directory_ / fmt::format("in-{}.jsonl", file), lines);
    }
  }

  // The exit status, or 128 + the signal; killed by `signal` after `seconds`, if it lives so long.
  int run(const std::vector<std::string>& more, double seconds = 1e9, int signal = SIGKILL) {
    std::vector<std::string> words{LOAM_BINARY, "tokenizer", "train"};
    words.insert(words.end(), more.begin(), more.end());
    const auto add = [&](const char* flag, const char* value) {
      if (std::find(words.begin(), words.end(), flag) == words.end()) words.insert(words.end(), {flag, value});
    };
    add("--threads", "2");
    add("--vocab-size", "400");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    testing::write_quickly(directory_ / "log", "");
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int file = ::open((directory_ / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
      ::dup2(file, 1);
      ::dup2(file, 2);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    if (seconds < 1e8) {
      sleep_seconds(seconds);
      ::kill(pid, signal);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::vector<std::string> to(const std::string& out, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--out", (directory_ / out).string(), "--input"});
    for (int file = 0; file < 3; ++file) more.push_back((directory_ / fmt::format("in-{}.jsonl", file)).string());
    return more;
  }
  std::string log() const { return read_file(directory_ / "log"); }
  std::string tokenizer(const std::string& out) const { return read_file(directory_ / out / "tokenizer.json"); }
  // Everything there but the inputs and the log.
  std::vector<std::string> outputs() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("in-") && name != "log") names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  testing::TempDir directory_;
};

TEST_F(TrainProcess, KilledAtRandomMomentsAndResumedIsTheSame) {
  constexpr int kKills = 20;
  const char* given = std::getenv("LOAM_SEED");
  const auto seed = given ? std::stoull(given) : static_cast<uint64_t>(::time(nullptr));
  SCOPED_TRACE(fmt::format("LOAM_SEED={} kills at these moments", seed));
  ASSERT_EQ(run(to("plain")), 0) << log();
  const std::vector<std::string> often = {"--checkpoint-every", "100kB", "--resume"};
  const Stopwatch watch;
  ASSERT_EQ(run(to("whole", often)), 0) << log();
  const double whole = watch.seconds();
  EXPECT_EQ(tokenizer("whole"), tokenizer("plain"));
  const PhiloxStream random{seed, 5};
  int killed = 0, resumed = 0;
  for (int i = 0; i < kKills; ++i) {
    const double moment = whole * static_cast<double>(random.uniform(static_cast<uint64_t>(i)));
    SCOPED_TRACE(fmt::format("killed after {} s", moment));
    const int status = run(to("killed", often), moment);
    ASSERT_TRUE(status == 128 + SIGKILL || status == 0) << log();
    killed += status != 0;
    resumed += log().find("counted already") != std::string::npos;
    if (!std::filesystem::exists(directory_ / "killed")) continue;
    EXPECT_EQ(tokenizer("killed"), tokenizer("plain"));
    std::filesystem::remove_all(directory_ / "killed");
  }
  EXPECT_GE(killed, kKills / 4);  // else the test showed nothing
  EXPECT_GE(resumed, kKills / 4);
  ASSERT_EQ(run(to("killed", often)), 0) << log();
  EXPECT_EQ(tokenizer("killed"), tokenizer("plain"));
  EXPECT_EQ(outputs(), (std::vector<std::string>{"killed", "plain", "whole"}));
}

TEST_F(TrainProcess, StoppedBySignalItSaysHowToGoOn) {
  ASSERT_EQ(run(to("plain")), 0) << log();
  const std::vector<std::string> often = {"--checkpoint-every", "10kB", "--resume"};
  int status = 0;
  for (double moment = 0.1; status == 0; moment /= 2) {
    std::filesystem::remove_all(directory_ / "stopped");
    status = run(to("stopped", often), moment, SIGINT);
  }
  if (log().find("counting begins anew") == std::string::npos) GTEST_SKIP() << "stopped before it began";
  EXPECT_FALSE(std::filesystem::exists(directory_ / "stopped"));
  if (std::filesystem::exists(directory_ / "stopped.counts" / "manifest.json")) {
    EXPECT_NE(log().find("stopped.counts: --resume goes on from the counts there"), std::string::npos) << log();
  }
  ASSERT_EQ(run(to("stopped", often)), 0) << log();
  EXPECT_EQ(tokenizer("stopped"), tokenizer("plain"));
}

TEST_F(TrainProcess, KeptCountsServeFurtherVocabularies) {
  const std::string counts = (directory_ / "kept").string();
  ASSERT_EQ(run(to("first", {"--counts", counts})), 0) << log();
  // Counts are not thrown away unasked.
  EXPECT_EQ(run(to("second", {"--counts", counts})), 1);
  EXPECT_NE(log().find("kept: counts of an earlier run; --resume goes on from them, --force counts anew"),
            std::string::npos)
      << log();
  ASSERT_EQ(run(to("second", {"--counts", counts, "--resume", "--vocab-size", "300"})), 0) << log();
  EXPECT_EQ(log().find("info counting:"), std::string::npos) << log();
  ASSERT_EQ(run(to("anew", {"--vocab-size", "300"})), 0) << log();
  EXPECT_EQ(tokenizer("second"), tokenizer("anew"));
  EXPECT_EQ(outputs(), (std::vector<std::string>{"anew", "first", "kept", "second"}));
  // Inputs that have changed since, or are read otherwise.
  EXPECT_EQ(run(to("third", {"--counts", counts, "--resume", "--text-key", "body"})), 1);
  EXPECT_NE(log().find("text_key \"text\", not \"body\""), std::string::npos) << log();
  write_file_atomic(directory_ / "in-1.jsonl", "{\"text\": \"x\"}\n");
  EXPECT_EQ(run(to("third", {"--counts", counts, "--resume"})), 1);
  EXPECT_NE(log().find("counted with inputs"), std::string::npos) << log();
}

TEST_F(TrainProcess, MemoryAndOrderDoNotMatter) {
  ASSERT_EQ(run(to("plain")), 0) << log();
  ASSERT_EQ(run(to("little", {"--memory", "1MB", "--checkpoint-every", "100kB"})), 0) << log();
  EXPECT_EQ(tokenizer("little"), tokenizer("plain"));
  std::filesystem::rename(directory_ / "in-0.jsonl", directory_ / "in-x");
  std::filesystem::rename(directory_ / "in-2.jsonl", directory_ / "in-0.jsonl");
  std::filesystem::rename(directory_ / "in-x", directory_ / "in-2.jsonl");
  ASSERT_EQ(run(to("order", {"--threads", "1"})), 0) << log();
  EXPECT_EQ(tokenizer("order"), tokenizer("plain"));
}

TEST_F(TrainProcess, WhatCannotBeMeantIsRefusedBeforeTheWork) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--memory", "4XB"}, "--memory 4XB: must be a number of bytes such as 512MB or 4GiB, at least 1.00 MB"},
      {{"--memory", "99999999999999999999"}, "--memory 99999999999999999999: must be a number of bytes"},
      {{"--memory", "1kB"}, "--memory 1kB: must be a number of bytes"},
      {{"--memory", ""}, "--memory '': must be a number of bytes"},
      {{"--limit-alphabet", "5"}, "--limit-alphabet: for --type char"},
      {{"--type", "char", "--max-token-length", "5"}, "--max-token-length: for --type bpe"},
      {{"--resume", "--input", "-"}, "--resume: standard input"}};
  for (const auto& [words, message] : cases) {
    EXPECT_EQ(run(to("out", words)), 2) << message;
    EXPECT_NE(log().find(message), std::string::npos) << log();
  }
  EXPECT_EQ(outputs(), std::vector<std::string>());
}

TEST_F(TrainProcess, TheAlphabetIsLimited) {
  ASSERT_EQ(run(to("three", {"--type", "char", "--limit-alphabet", "3", "--special", "</s>"})), 0) << log();
  const Json vocab = Json::parse(tokenizer("three")).at("model").at("vocab");
  EXPECT_EQ(vocab.as_object().size(), 256u + 3 + 1);
  // Of the parts above, by how often each letter stands in them.
  for (const char* kept : {"e", "w", " "}) EXPECT_NE(vocab.find(kept), nullptr) << kept;
}

// Of JSONL the documents, not the lines.
TEST_F(TrainProcess, HeldOutTextIsReadAsInputsAre) {
  const std::string text = "the lower \"wide\"\n newest";
  Json line;
  line["text"] = text;
  write_file_atomic(directory_ / "in-held.txt", text);
  write_file_atomic(directory_ / "in-held.jsonl", line.dump() + "\n" + line.dump() + "\n");
  std::vector<double> bytes_a_token;
  for (const char* name : {"in-held.txt", "in-held.jsonl"}) {
    ASSERT_EQ(run(to("out", {"--json", "--log-level", "error", "--force", "--held-out", (directory_ / name).string()})),
              0)
        << log();
    bytes_a_token.push_back(Json::parse(log()).at("held_out_bytes_per_token").as_double());
  }
  EXPECT_GT(bytes_a_token[0], 1.0);
  EXPECT_EQ(bytes_a_token[0], bytes_a_token[1]);
}

}  // namespace
}  // namespace loam
