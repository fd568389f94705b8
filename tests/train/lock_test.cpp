// A file system without locks, as some of clusters are: flock(2) is this program's own.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "loam/base/file.h"
#include "loam/train/run_directory.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

static int refusal = 0;  // the error of every call; 0: the system's own answer

extern "C" int flock(int fd, int operation) noexcept {
  if (refusal == 0) return static_cast<int>(::syscall(SYS_flock, fd, operation));
  errno = refusal;
  return -1;
}

namespace loam {
namespace {

class Refusal {
 public:
  explicit Refusal(int error) { refusal = error; }
  ~Refusal() { refusal = 0; }
};

TEST(Lock, AFileSystemWithoutLocksIsAWarning) {
  const testing::TempDir directory;
  for (const int error : {EOPNOTSUPP, ENOSYS, ENOLCK}) {
    const Refusal refused(error);
    ::testing::internal::CaptureStderr();
    { const RunLock lock(directory / "run"); }
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("run: the file system has no locks"), std::string::npos) << said;
    EXPECT_FALSE(std::filesystem::exists(directory / "run"));
  }
}

TEST(Lock, OtherFailuresAreErrorsThatLeaveNothing) {
  const testing::TempDir directory;
  {
    const Refusal refused(EIO);
    EXPECT_LOAM_ERROR(RunLock(directory / "run"), ErrorCode::kIo, "run/.lock: cannot lock");
  }
  const RunLock held(directory / "held");
  EXPECT_LOAM_ERROR(RunLock(directory / "held"), ErrorCode::kAlreadyExists, "another process is training there");
}

TEST(Lock, ADirectoryAppearsWithoutLocksToo) {
  const testing::TempDir directory;
  const Refusal refused(EOPNOTSUPP);
  std::filesystem::create_directory(directory / ".out.tmp-17");  // not known to be abandoned
  AtomicDirectory building(directory / "out");
  write_file_atomic(building.path() / "a", "x");
  building.commit();
  EXPECT_EQ(read_file(directory / "out" / "a"), "x");
  EXPECT_TRUE(std::filesystem::exists(directory / ".out.tmp-17"));
}

}  // namespace
}  // namespace loam
