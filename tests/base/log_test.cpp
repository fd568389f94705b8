#include "loam/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <regex>
#include <sstream>
#include <thread>
#include <vector>

#include "loam/base/progress.h"
#include "tests/harness/expect_error.h"

namespace loam {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { set_log_level(LogLevel::kInfo); }
};

// What `action` writes to stderr, which is no terminal meanwhile.
template <class Action>
std::string stderr_of(Action&& action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(LogTest, LevelsHide) {
  const auto all = [] {
    log_debug("d{}", 1);
    log_info("i{}", 2);
    log_warn("w{}", 3);
  };
  EXPECT_TRUE(std::regex_match(stderr_of(all), std::regex("..:..:.. info i2\n..:..:.. warning w3\n")));
  set_log_level(LogLevel::kOff);
  EXPECT_EQ(stderr_of(all), "");
  set_log_level(parse_log_level("debug"));
  EXPECT_NE(stderr_of(all).find("debug d1"), std::string::npos);
  EXPECT_LOAM_ERROR(parse_log_level("wrn"), ErrorCode::kInvalidArgument, "did you mean 'warn'?");
}

TEST_F(LogTest, BracesInAMessageAreText) {
  EXPECT_NE(stderr_of([] { log_line(LogLevel::kInfo, "{} %v {0}"); }).find("{} %v {0}\n"), std::string::npos);
}

TEST_F(LogTest, LinesOfSeveralThreadsAreNotMixed) {
  const std::string text = stderr_of([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 200; ++i) log_info("{}", std::string(100, static_cast<char>('a' + t)));
      });
    }
    for (auto& thread : threads) thread.join();
  });
  std::istringstream lines(text);
  const std::regex whole("..:..:.. info (a{100}|b{100}|c{100}|d{100})");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) ASSERT_TRUE(std::regex_match(line, whole)) << line;
  EXPECT_EQ(count, 800);
}

TEST_F(LogTest, ProgressInAPipeIsPlainLines) {
  const std::string text = stderr_of([] {
    Progress progress("reading", 100, "bytes");
    progress.advance(60);
    progress.advance(40);
    progress.note("all well");
    progress.finish();
    progress.finish();
  });
  EXPECT_TRUE(std::regex_match(text, std::regex("..:..:.. info reading: 100 B in .*, all well\n"))) << text;
  set_log_level(LogLevel::kWarn);
  EXPECT_EQ(stderr_of([] { Progress("reading", 1, "bytes").finish(); }), "");
}

// stderr is a terminal of 60 columns while `action` runs.
template <class Action>
std::string terminal_output(Action&& action) {
  int master = -1, slave = -1;
  winsize size = {};
  size.ws_col = 60;
  size.ws_row = 24;
  if (::openpty(&master, &slave, nullptr, nullptr, &size) != 0) return "no terminal";
  ::setenv("TERM", "xterm", 1);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(slave, STDERR_FILENO);
  action();
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  ::close(slave);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(master, buffer, sizeof buffer)) > 0;) text.append(buffer, got);
  ::close(master);
  return text;
}

TEST_F(LogTest, ProgressOnATerminalIsABarThatLogLinesDoNotCut) {
  const std::string text = terminal_output([] {
    Progress progress("training", 200, "tokens");
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    progress.note("loss 2.31");
    progress.advance(100);
    log_info("in between");
    progress.finish();
  });
  if (text == "no terminal") GTEST_SKIP() << "no pseudo terminal to be had here";
  const size_t bar = text.find("training: [############------------]  50%");
  const size_t line = text.find("in between");
  ASSERT_NE(bar, std::string::npos) << text;
  ASSERT_NE(line, std::string::npos) << text;
  const size_t cleared = text.find("\r\033[K", bar), again = text.find("training: [", line);
  EXPECT_TRUE(bar < cleared && cleared < line && line < again) << text;
  const size_t end = text.find('\r', bar);
  EXPECT_LT(end - bar, 60u);  // a longer line would wrap and could not be cleared
  EXPECT_NE(text.find("training: 100 tokens in "), std::string::npos) << text;
}

TEST(Format, Quantities) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1234), "1.23 kB");
  EXPECT_EQ(format_bytes(4.4e6), "4.40 MB");
  EXPECT_EQ(format_bytes(999'999), "1.00 MB");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(12'345), "12.3 k");
  EXPECT_EQ(format_count(3'400'000), "3.40 M");
  EXPECT_EQ(format_count(0.5), "0.50");
  EXPECT_EQ(format_duration(0.25), "250 ms");
  EXPECT_EQ(format_duration(1.25), "1.2 s");
  EXPECT_EQ(format_duration(59.97), "1m 00s");
  EXPECT_EQ(format_duration(723), "12m 03s");
  EXPECT_EQ(format_duration(3660), "1h 01m");
  EXPECT_EQ(format_duration(90'000), "1d 01h");
}

}  // namespace
}  // namespace loam
