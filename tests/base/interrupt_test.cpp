#include "loam/base/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/harness/expect_error.h"

namespace loam {
namespace {

TEST(Interrupt, FirstSignalSetsTheFlag) {
  const InterruptScope scope;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    clear_interrupt();
    EXPECT_FALSE(interrupted());
    EXPECT_NO_THROW(check_interrupt());
    ::raise(signal);
    EXPECT_TRUE(interrupted());
    EXPECT_LOAM_ERROR(check_interrupt(), ErrorCode::kInterrupted, "interrupted");
  }
  clear_interrupt();
}

TEST(InterruptDeathTest, SecondSignalEndsTheProcess) {
  const auto twice = [](int first, int second) {
    const InterruptScope scope;
    ::raise(first);
    ::raise(second);
  };
  EXPECT_EXIT(twice(SIGINT, SIGINT), ::testing::ExitedWithCode(130), "");
  EXPECT_EXIT(twice(SIGINT, SIGTERM), ::testing::ExitedWithCode(143), "");
}

TEST(InterruptDeathTest, HandlersAreGoneAfterTheScope) {
  const auto after = [] {
    {
      const InterruptScope outer;
      const InterruptScope inner;
    }
    ::raise(SIGTERM);
  };
  EXPECT_EXIT(after(), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(Interrupt, CanBeRequested) {
  request_interrupt();
  EXPECT_TRUE(interrupted());
  clear_interrupt();
  EXPECT_FALSE(interrupted());
}

}  // namespace
}  // namespace loam
