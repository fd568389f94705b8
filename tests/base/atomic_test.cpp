// What is written appears whole or not at all: after an error, on a full disk, and when the process is killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "loam/base/clock.h"
#include "loam/base/file.h"
#include "loam/base/interrupt.h"
#include "loam/base/philox.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;

int entries_in(const Path& directory) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

// No file may grow past `bytes` while this lives: writing more fails with an error, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(int64_t bytes) {
    old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {static_cast<rlim_t>(bytes), old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_ = {};
  sighandler_t old_handler_;
};

TEST(AtomicFile, NothingAppearsBeforeCommit) {
  const TempDir dir;
  const Path path = dir / "a";
  {
    AtomicFile file(path);
    file.write("hello");
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_EQ(entries_in(dir.path()), 0);
  AtomicFile file(path);
  file.write("????world");
  file.write_at(0, "big ", 4);
  EXPECT_EQ(file.size(), 9);
  file.commit();
  EXPECT_EQ(read_file(path), "big world");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(AtomicFile, RefusesWhatItCannotReplace) {
  const TempDir dir;
  EXPECT_LOAM_ERROR(AtomicFile(dir.path()), ErrorCode::kInvalidArgument, "not a regular file");
  EXPECT_LOAM_ERROR(AtomicFile("/dev/null"), ErrorCode::kInvalidArgument, "not a regular file");
  EXPECT_LOAM_ERROR(AtomicFile(dir / "no" / "a"), ErrorCode::kNotFound, "cannot create");
  EXPECT_EQ(entries_in(dir.path()), 0);
}

TEST(AtomicFile, TooLargeAFileLeavesTheOldOne) {
  const TempDir dir;
  write_file_atomic(dir / "a", "old");
  const std::string large(4 << 20, 'x');
  {
    const FileSizeLimit limit(1 << 20);
    EXPECT_LOAM_ERROR(write_file_atomic(dir / "a", large), ErrorCode::kIo, "/a: cannot write: File too large");
  }
  EXPECT_EQ(read_file(dir / "a"), "old");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(AtomicFile, FullDiskLeavesTheOldOne) {
  const TempDir dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "a 1 MB tmpfs cannot be mounted here (needs root)";
  }
  write_file_atomic(dir / "a", "old");
  EXPECT_LOAM_ERROR(write_file_atomic(dir / "a", std::string(4 << 20, 'x')), ErrorCode::kIo, "No space left");
  EXPECT_EQ(read_file(dir / "a"), "old");
  EXPECT_EQ(entries_in(dir.path()), 1);
  EXPECT_LOAM_ERROR(AtomicDirectory(dir.path(), true, {"a"}), ErrorCode::kInvalidArgument, "mount point");

  const auto fill = [&] {
    AtomicDirectory directory(dir / "d");
    write_file_atomic(directory.path() / "small", "x");
    write_file_atomic(directory.path() / "large", std::string(4 << 20, 'x'));
    directory.commit();
  };
  EXPECT_LOAM_ERROR(fill(), ErrorCode::kIo, "No space left");
  EXPECT_EQ(entries_in(dir.path()), 1);
  write_file_atomic(dir / "b", std::string(600 << 10, 'y'));  // the space was given back
  ::umount(dir.path().c_str());
}

TEST(AtomicDirectory, AppearsWholeOrNotAtAll) {
  const TempDir dir;
  const Path path = dir / "out";
  {
    AtomicDirectory directory(path);
    write_file_atomic(directory.path() / "a", "1");
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_EQ(entries_in(dir.path()), 0);
  AtomicDirectory directory(path.string() + "/");  // the same place
  std::filesystem::create_directory(directory.path() / "sub");
  write_file_atomic(directory.path() / "sub" / "a", "1");
  directory.commit();
  EXPECT_EQ(read_file(path / "sub" / "a"), "1");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(AtomicDirectory, ReplacesOnlyWhenAsked) {
  const TempDir dir;
  const Path path = dir / "out";
  std::filesystem::create_directory(path);
  std::ofstream(path / "old") << "1";
  EXPECT_LOAM_ERROR(AtomicDirectory{path}, ErrorCode::kAlreadyExists, "/out: already exists (--force replaces it)");
  AtomicDirectory directory(path, true);
  write_file_atomic(directory.path() / "new", "2");
  EXPECT_TRUE(std::filesystem::exists(path / "old"));
  directory.commit();
  EXPECT_FALSE(std::filesystem::exists(path / "old"));
  EXPECT_EQ(read_file(path / "new"), "2");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(AtomicDirectory, ReplacesNothingThatIsNotItsOwn) {
  const testing::TempDir dir;
  const std::vector<std::string> contents{"model*.safetensors", "config.json"};
  std::filesystem::create_directory(dir / "out");
  write_file_atomic(dir / "out" / "config.json", "old");
  write_file_atomic(dir / "out" / "thesis.tex", "mine");
  EXPECT_LOAM_ERROR(AtomicDirectory(dir / "out", true, contents), ErrorCode::kAlreadyExists, "out: holds thesis.tex");
  EXPECT_EQ(read_file(dir / "out" / "thesis.tex"), "mine");
  EXPECT_LOAM_ERROR(AtomicDirectory(dir / "out" / "thesis.tex", true, contents), ErrorCode::kAlreadyExists,
                    "is no directory");
  std::filesystem::rename(dir / "out" / "thesis.tex", dir / "out" / "model-00001-of-00002.safetensors");
  {
    AtomicDirectory directory(dir / "out", true, contents);
    directory.commit();
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir / "out"));
}

// Neither further down, nor under one of its own names, nor behind a link.
TEST(AtomicDirectory, ReplacesNothingThatIsNotItsOwnFurtherDown) {
  const testing::TempDir dir;
  const std::vector<std::string> contents{"train/shard-*.tok", "index.json"};
  const auto refused = [&](const Path& path, const std::string& part) {
    EXPECT_LOAM_ERROR(AtomicDirectory(dir / "out", true, contents), ErrorCode::kAlreadyExists, "out: holds " + part);
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::symlink_status(path)));
    std::filesystem::remove_all(path);
  };
  std::filesystem::create_directories(dir / "out" / "train");
  write_file_atomic(dir / "out" / "train" / "shard-00000.tok", "old");
  write_file_atomic(dir / "out" / "train" / "notes.txt", "mine");
  refused(dir / "out" / "train" / "notes.txt", "train/notes.txt");
  std::filesystem::create_directory(dir / "out" / "index.json");
  refused(dir / "out" / "index.json", "index.json");
  std::filesystem::create_directory(dir / "out" / "val");
  refused(dir / "out" / "val", "val");
  std::filesystem::create_symlink("/etc/hostname", dir / "out" / "index.json");
  refused(dir / "out" / "index.json", "index.json");
  AtomicDirectory(dir / "out", true, contents).commit();
  EXPECT_TRUE(std::filesystem::is_empty(dir / "out"));
}

TEST(AtomicDirectory, ARivalThatCameFirstIsKept) {
  const TempDir dir;
  const Path path = dir / "out";
  AtomicDirectory directory(path);
  std::filesystem::create_directory(path);
  std::ofstream(path / "a") << "theirs";
  EXPECT_LOAM_ERROR(directory.commit(), ErrorCode::kAlreadyExists, "/out: another process has made it");
  EXPECT_EQ(read_file(path / "a"), "theirs");
}

TEST(AtomicDirectory, AnEmptyDirectoryIsAsGoodAsNone) {
  const TempDir dir;
  const Path path = dir / "out";
  std::filesystem::create_directory(path);
  AtomicDirectory directory(path);
  write_file_atomic(directory.path() / "a", "1");
  directory.commit();
  EXPECT_EQ(read_file(path / "a"), "1");
  EXPECT_EQ(entries_in(dir.path()), 1);

  // But no directory that somebody works in.
  std::filesystem::create_directory(dir / "here");
  const Path before = std::filesystem::current_path();
  std::filesystem::current_path(dir / "here");
  EXPECT_LOAM_ERROR(AtomicDirectory("."), ErrorCode::kInvalidArgument, "working directory");
  EXPECT_LOAM_ERROR(AtomicDirectory(dir / "here"), ErrorCode::kInvalidArgument, "working directory");
  std::filesystem::current_path(before);
}

TEST(AtomicDirectory, DirectoriesAboveItStayOnlyWithIt) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "mine");
  { AtomicDirectory directory(dir / "mine" / "a" / "b" / "out"); }
  EXPECT_TRUE(std::filesystem::is_empty(dir / "mine"));
  AtomicDirectory(dir / "mine" / "a" / "b" / "out").commit();
  EXPECT_TRUE(std::filesystem::is_directory(dir / "mine" / "a" / "b" / "out"));
}

TEST(Atomic, ALinkIsFollowedAndStays) {
  const TempDir dir;
  namespace fs = std::filesystem;
  for (const char* name : {"disk", "disk/there"}) fs::create_directory(dir / name);
  write_file_atomic(dir / "disk" / "there" / "a", "old");
  write_file_atomic(dir / "disk" / "file", "old");
  fs::create_symlink("disk/there", dir / "first");
  fs::create_symlink("first", dir / "out");
  fs::create_symlink("disk/new", dir / "dangling");
  fs::create_symlink("disk/file", dir / "file");
  EXPECT_LOAM_ERROR(AtomicDirectory(dir / "out"), ErrorCode::kAlreadyExists, "disk/there: already exists");
  for (const char* name : {"out", "dangling"}) {
    AtomicDirectory directory(dir / name, true, {"a"});
    write_file_atomic(directory.path() / "a", "new");
    directory.commit();
  }
  write_file_atomic(dir / "file", "new");
  for (const char* link : {"first", "out", "dangling", "file"}) EXPECT_TRUE(fs::is_symlink(dir / link)) << link;
  for (const char* file : {"there/a", "new/a", "file"}) EXPECT_EQ(read_file(dir / "disk" / file), "new") << file;
  fs::create_symlink("loop", dir / "loop");
  EXPECT_LOAM_ERROR(AtomicDirectory(dir / "loop"), ErrorCode::kIo, "follow its links");
  EXPECT_EQ(entries_in(dir.path()), 6);
  EXPECT_EQ(entries_in(dir / "disk"), 3);
}

// A second signal ends the process where it stands.
TEST(Atomic, WhatTwoSignalsLeaveIsRemovedByTheNextWriter) {
  const TempDir dir;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const InterruptScope interrupt;
    AtomicDirectory directory(dir / "out");
    AtomicFile file(dir / "file");
    std::ofstream(directory.path() / "a") << "1";
    ::raise(SIGINT);
    ::raise(SIGINT);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
  EXPECT_EQ(entries_in(dir.path()), 2);
  { const AtomicDirectory again(dir / "out"); }
  EXPECT_EQ(entries_in(dir.path()), 1);
  { const AtomicFile again(dir / "file"); }
  EXPECT_EQ(entries_in(dir.path()), 0);
}

TEST(AtomicDirectory, WhatAKilledProcessLeftIsRemovedAndWhatALivingOneBuildsIsNot) {
  const TempDir dir;
  const Path path = dir / "out";
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicDirectory directory(path);
    std::filesystem::create_directory(directory.path() / "sub");
    std::ofstream(directory.path() / "sub" / "a") << "1";
    if (::write(pipe[1], "x", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte;
  ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
  std::filesystem::create_directory(dir / ".out.tmp-notes");  // another's name
  {
    EXPECT_LOAM_ERROR(AtomicDirectory(path, true), ErrorCode::kAlreadyExists, "/out: another process is writing it");
    const AtomicDirectory other(dir / "other");
    EXPECT_EQ(entries_in(dir.path()), 3);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int end : pipe) ::close(end);
  EXPECT_EQ(entries_in(dir.path()), 2);
  const AtomicDirectory other(dir / "other");
  EXPECT_EQ(entries_in(dir.path()), 3);
  const AtomicDirectory again(path);
  EXPECT_EQ(entries_in(dir.path()), 3);
  EXPECT_TRUE(std::filesystem::exists(dir / ".out.tmp-notes"));
}

// Writes generation after generation of a directory whose two files must always agree, until it is killed. Each commit
// puts a byte into `pipe`.
[[noreturn]] void write_generations(const Path& path, int pipe) {
  for (int generation = 1;; ++generation) {
    AtomicDirectory directory(path, true);
    const std::string text = std::to_string(generation) + std::string(20'000, '.');
    write_file_atomic(directory.path() / "a", text);
    write_file_atomic(directory.path() / "b", text);
    directory.commit();
    if (::write(pipe, "x", 1) != 1) ::_exit(1);
  }
}

TEST(AtomicDirectory, KilledAtAnyMomentLeavesAWholeOne) {
  const TempDir dir;
  const Path path = dir / "out";
  {
    AtomicDirectory first(path);
    for (const char* name : {"a", "b"}) write_file_atomic(first.path() / name, "0");
    first.commit();
  }
  const PhiloxStream random{11, 0};
  for (int kill_number = 0; kill_number < 20; ++kill_number) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const Stopwatch watch;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_generations(path, pipe[1]);
    char byte;
    ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
    // Within the two generations that follow the first.
    std::this_thread::sleep_for(std::chrono::duration<double>(2 * watch.seconds() * random.uniform(kill_number)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    for (const int end : pipe) ::close(end);
    const std::string a = read_file(path / "a");
    EXPECT_EQ(a, read_file(path / "b")) << "kill " << kill_number;
    EXPECT_GE(a.size(), 20'001u);
  }
}

}  // namespace
}  // namespace loam
