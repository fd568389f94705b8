#include "loam/base/mmap.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "loam/base/error.h"
#include "loam/base/map_guard.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

namespace loam {
namespace {

using testing::TempDir;

TEST(MappedFile, ShowsTheFile) {
  const TempDir dir;
  testing::write_quickly(dir / "a", "some bytes");
  testing::write_quickly(dir / "empty", "");
  MappedFile first(dir / "a");
  EXPECT_EQ(first.text(), "some bytes");
  MappedFile second = std::move(first);
  EXPECT_EQ(second.bytes().size(), 10u);
  EXPECT_EQ(MappedFile(dir / "empty").size(), 0);
  EXPECT_LOAM_ERROR(MappedFile(dir / "none"), ErrorCode::kNotFound, "/none");
  EXPECT_LOAM_ERROR(MappedFile(dir.path()), ErrorCode::kIo, "not a regular file");
}

constexpr size_t kPages = 1 << 16;  // bytes, whole pages on every machine

// Several maps, one of them gone again; then a file is cut and read where it is no longer.
void read_what_is_cut(const Path& directory) {
  for (const char* name : {"a", "b", "gone"}) testing::write_quickly(directory / name, std::string(kPages, 'x'));
  const MappedFile a(directory / "a");
  { const MappedFile gone(directory / "gone"); }
  const MappedFile b(directory / "b");
  if (::truncate((directory / "b").c_str(), 0) != 0) ::_exit(3);
  ::_exit(std::count(b.text().begin(), b.text().end(), 'x') == 0 ? 4 : 5);
}

TEST(MappedFileDeathTest, AFileThatIsCutWhileInUseIsNamed) {
  const TempDir dir;
  EXPECT_EXIT(read_what_is_cut(dir.path()), ::testing::ExitedWithCode(1),
              "^error: .*/b: it was cut, or could not be read, while in use\n$");
}

TEST(MappedFile, AGuardedReadOfWhatIsCutIsAnError) {
  const TempDir dir;
  for (const char* name : {"a", "b"}) testing::write_quickly(dir / name, std::string(kPages, 'x'));
  const MappedFile a(dir / "a"), b(dir / "b");
  ASSERT_EQ(::truncate((dir / "b").c_str(), 0), 0);
  const auto count = [](const MappedFile& file) {
    int64_t found = 0;
    guarded([&] { found = std::count(file.text().begin(), file.text().end(), 'x'); });
    return found;
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_LOAM_ERROR(count(b), ErrorCode::kIo, "/b: it was cut");
    EXPECT_EQ(count(a), static_cast<int64_t>(kPages));
  }
}

// A read behind the end of a map that is not loam's.
void read_a_foreign_map(const Path& directory) {
  testing::write_quickly(directory / "a", "x");
  const MappedFile ours(directory / "a");
  const int fd = ::memfd_create("foreign", 0);
  auto* data = static_cast<volatile char*>(::mmap(nullptr, kPages, PROT_READ, MAP_SHARED, fd, 0));
  ::_exit(data[kPages / 2] == 0 ? 4 : 5);
}

TEST(MappedFileDeathTest, OtherBusErrorsGoWhereTheyWent) {
  const TempDir dir;
  const auto with_own_handler = [&] {
    ::signal(SIGBUS, [](int) { ::_exit(42); });
    read_a_foreign_map(dir.path());
  };
  EXPECT_EXIT(with_own_handler(), ::testing::ExitedWithCode(42), "^$");
  const auto with_detailed_handler = [&] {
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) { ::_exit(info->si_addr != nullptr ? 43 : 44); };
    sigaction(SIGBUS, &action, nullptr);
    read_a_foreign_map(dir.path());
  };
  EXPECT_EXIT(with_detailed_handler(), ::testing::ExitedWithCode(43), "^$");
  const auto by_default = [&] {
    ::signal(SIGBUS, SIG_DFL);
    read_a_foreign_map(dir.path());
  };
  EXPECT_EXIT(by_default(), ::testing::KilledBySignal(SIGBUS), "^$");
  const auto sent = [&] {
    ::signal(SIGBUS, SIG_DFL);
    testing::write_quickly(dir / "a", "x");
    const MappedFile ours(dir / "a");
    ::raise(SIGBUS);
  };
  EXPECT_EXIT(sent(), ::testing::KilledBySignal(SIGBUS), "^$");
}

}  // namespace
}  // namespace loam
