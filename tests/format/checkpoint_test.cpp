#include "loam/format/checkpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <random>
#include <set>

#include "loam/base/clock.h"
#include "loam/base/log.h"
#include "loam/format/safetensors.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

// A checkpoint all of whose values are its step.
Path save(CheckpointStore& store, int64_t step, int64_t values = 1000, int64_t keep_last = 0) {
  const auto arena = Arena::create(Device{});
  const std::vector<float> content(static_cast<size_t>(values), static_cast<float>(step));
  const Tensor tensor = Tensor::from<float>(*arena, {values}, content);
  return store.save(step, {{"model", {{"w", tensor}}}, {"optimizer", {{"m", tensor}, {"v", tensor}}}},
                    Json::Object{{"step", step}}, {keep_last});
}

void expect_whole(const CheckpointInfo& info) {
  EXPECT_NO_THROW(VerifiedCheckpoint(info.path));
  EXPECT_EQ(read_checkpoint_state(info.path).at("step").as_int(), info.step);
  for (const char* name : {"model", "optimizer"}) {
    const SafetensorsFile file(info.path / (std::string(name) + ".safetensors"));
    for (const std::string& tensor : file.names()) {
      const Tensor values = file.tensor(tensor);
      for (const float value : values.span<float>()) ASSERT_EQ(value, static_cast<float>(info.step));
    }
  }
}

std::vector<int64_t> steps(const CheckpointStore& store) {
  std::vector<int64_t> steps;
  for (const auto& info : store.list()) steps.push_back(info.step);
  return steps;
}

int64_t entries(const Path& directory) {
  return std::distance(fs::directory_iterator(directory), fs::directory_iterator());
}

class Checkpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    level_ = log_level();
    set_log_level(LogLevel::kOff);
  }
  void TearDown() override { set_log_level(level_); }

  TempDir run_;
  Path directory_ = run_ / "checkpoints";
  CheckpointStore store_{directory_};
  LogLevel level_;
};

TEST_F(Checkpoint, AnEmptyRunHasNone) {
  EXPECT_TRUE(store_.list().empty());
  EXPECT_FALSE(store_.newest_complete());
  EXPECT_NO_THROW(store_.clean());
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(Checkpoint, SavesAndFindsTheNewest) {
  EXPECT_EQ(save(store_, 100), directory_ / "step-00000100");
  save(store_, 90);
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{90, 100}));
  const auto newest = store_.newest_complete();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, 100);
  expect_whole(*newest);
  const Json manifest = Json::parse(read_file(newest->path / "MANIFEST.json"));
  EXPECT_EQ(manifest.at("files").as_object().size(), 3u);
  EXPECT_EQ(manifest.at("files").at("state.json").at("bytes").as_int(),
            static_cast<int64_t>(fs::file_size(newest->path / "state.json")));
}

TEST_F(Checkpoint, TheSameStepIsReplaced) {
  save(store_, 7, 10);
  save(store_, 7, 20);
  EXPECT_EQ(entries(directory_), 1);
  EXPECT_EQ(SafetensorsFile(directory_ / "step-00000007" / "model.safetensors").tensor("w").numel(), 20);
}

TEST_F(Checkpoint, KeepsTheLast) {
  for (int64_t step = 10; step <= 50; step += 10) save(store_, step, 100, 2);
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{40, 50}));
  // Of another branch, later: untouched, and does not count.
  save(store_, 45, 100, 1);
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{45, 50}));
}

TEST_F(Checkpoint, KeepsEveryNthAndTheBest) {
  const auto write = [&](int64_t step, const KeepPolicy& keep) { store_.save(step, {}, Json::object(), keep); };
  for (int64_t step = 10; step <= 90; step += 10) write(step, {.last = 1, .every = 40, .steps = {30}});
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{30, 40, 80, 90}));
  store_.prune(90, {.last = 1, .every = 0, .steps = {40}});
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{40, 90}));
  store_.prune(80, {.last = 1});  // 90 comes later, and 40 is the newest up to 80
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{40, 90}));
  store_.prune(90, {.last = 0});
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{40, 90}));
  // A torn one is nobody's best.
  fs::remove(directory_ / "step-00000040" / "MANIFEST.json");
  store_.prune(90, {.last = 1, .every = 40, .steps = {40}});
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{90}));
}

TEST_F(Checkpoint, TornOnesDoNotCountAsKept) {
  save(store_, 1);
  save(store_, 2);
  fs::remove(directory_ / "step-00000002" / "MANIFEST.json");
  save(store_, 3, 100, 2);
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{1, 3}));
}

TEST_F(Checkpoint, EveryKindOfTearIsSeenAndSkipped) {
  using Tear = void (*)(const Path&);
  const std::pair<const char*, Tear> tears[] = {
      {"there is no MANIFEST.json", [](const Path& p) { fs::remove(p / "MANIFEST.json"); }},
      {"MANIFEST.json", [](const Path& p) { fs::resize_file(p / "MANIFEST.json", 20); }},
      {"MANIFEST.json", [](const Path& p) { fs::resize_file(p / "MANIFEST.json", 0); }},
      {"model.safetensors", [](const Path& p) { fs::remove(p / "model.safetensors"); }},
      {"bytes, its manifest says", [](const Path& p) { fs::resize_file(p / "model.safetensors", 50); }},
      {"state.json", [](const Path& p) { fs::remove(p / "state.json"); }},
      {"does not name state.json",
       [](const Path& p) {
         write_file_atomic(p / "MANIFEST.json", R"({"format":"loam checkpoint","version":1,"step":2,"files":{}})");
       }},
      {"unreadable entry",
       [](const Path& p) {
         write_file_atomic(p / "MANIFEST.json",
                           R"({"format":"loam checkpoint","version":1,"step":2,"files":{"state.json":{},"../x":{}}})");
       }},
      {"differ from the manifest's hash",
       [](const Path& p) {  // same size, zeros: what a lost page looks like
         std::fstream file(p / "optimizer.safetensors", std::ios::in | std::ios::out | std::ios::binary);
         file.seekp(-4, std::ios::end);
         file.write("\0\0\0\0", 4);
       }},
  };
  for (const auto& [what, tear] : tears) {
    save(store_, 1);
    save(store_, 2);
    tear(directory_ / "step-00000002");
    EXPECT_LOAM_ERROR(VerifiedCheckpoint(directory_ / "step-00000002"), ErrorCode::kBadFormat, what);
    const auto newest = store_.newest_complete();
    ASSERT_TRUE(newest) << what;
    EXPECT_EQ(newest->step, 1) << what;
    EXPECT_EQ(steps(store_), (std::vector<int64_t>{1, 2})) << what;
  }
}

// Of another program's version, under another step's name, or not readable now: none of them is torn.
TEST_F(Checkpoint, WhatCannotBeToldIsAnErrorAndStays) {
  using Change = void (*)(const Path&);
  const std::tuple<ErrorCode, const char*, Change> changes[] = {
      {ErrorCode::kUnavailable, "MANIFEST.json: version 2",
       [](const Path& p) { write_file_atomic(p / "MANIFEST.json", R"({"format":"loam checkpoint","version":2})"); }},
      {ErrorCode::kIo, "MANIFEST.json",
       [](const Path& p) {
         fs::remove(p / "MANIFEST.json");
         fs::create_symlink("MANIFEST.json", p / "MANIFEST.json");  // ELOOP, for every user
       }},
      {ErrorCode::kIo, "model.safetensors",
       [](const Path& p) {
         fs::remove(p / "model.safetensors");
         fs::create_symlink("model.safetensors", p / "model.safetensors");
       }},
      {ErrorCode::kInvalidArgument, "step 3, but the directory is named step-00000002",
       [](const Path& p) {
         fs::remove_all(p);
         fs::copy(p.parent_path() / "step-00000003", p);
       }},
  };
  for (const auto& [code, what, change] : changes) {
    SCOPED_TRACE(what);
    save(store_, 1);
    save(store_, 3);
    save(store_, 2);
    change(directory_ / "step-00000002");
    fs::remove_all(directory_ / "step-00000003");
    EXPECT_LOAM_ERROR(store_.newest_complete(), code, what);
    save(store_, 4, 1000, 2);
    EXPECT_EQ(steps(store_), (std::vector<int64_t>{1, 2, 4}));
    fs::rename(directory_ / "step-00000002", directory_ / ".step-00000002.old-1-1");
    store_.clean();
    EXPECT_EQ(steps(store_), (std::vector<int64_t>{1, 2, 4}));
    fs::remove_all(directory_);
  }
}

TEST_F(Checkpoint, LeftoversGoAndNothingElse) {
  save(store_, 1);
  fs::create_directories(directory_ / ".step-00000002.tmp-123-0" / "deep");
  fs::create_directories(directory_ / ".step-00000003.old-123-1");
  fs::create_directories(directory_ / ".step-00000004.removed");
  fs::create_directories(directory_ / "step-x");
  fs::create_directories(directory_ / ".mine");
  store_.clean();
  EXPECT_EQ(entries(directory_), 3);
  EXPECT_EQ(steps(store_), (std::vector<int64_t>{1}));
  EXPECT_TRUE(fs::exists(directory_ / ".mine"));
}

// A kill between the two renames of a replacement.
TEST_F(Checkpoint, ACompleteOneThatWasMovedAwayComesBack) {
  save(store_, 5);
  fs::rename(directory_ / "step-00000005", directory_ / ".step-00000005.old-9-9");
  store_.clean();
  ASSERT_TRUE(store_.newest_complete());
  expect_whole(*store_.newest_complete());
  EXPECT_EQ(entries(directory_), 1);
}

// Runs `body` in a child process; its exit status, or 128 + the signal.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      status = body();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// 0 if a save that the system stops half way leaves step 1 and nothing else.
int fails_and_keeps_the_old(CheckpointStore& store, const Path& directory, int64_t values) {
  try {
    save(store, 2, values);
    return 2;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) return 3;
  }
  const auto newest = store.newest_complete();
  if (!newest || newest->step != 1) return 4;
  return entries(directory) == 1 ? 0 : 5;
}

TEST_F(Checkpoint, ALimitOnFileSizeLeavesTheOldState) {
  save(store_, 1);
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {64 << 10, 64 << 10};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 6;
    return fails_and_keeps_the_old(store_, directory_, 100'000);
  });
  EXPECT_EQ(status, 0);
}

TEST_F(Checkpoint, AFullDiskLeavesTheOldState) {
  constexpr int kNoMount = 77;
  const int status = in_child([&] {
    // Root, or any user where user namespaces are allowed.
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return kNoMount;
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("tmpfs", run_.path().c_str(), "tmpfs", 0, "size=1m") != 0) return kNoMount;
    save(store_, 1, 10'000);                                      // 120 kB
    return fails_and_keeps_the_old(store_, directory_, 100'000);  // 1.2 MB
  });
  if (status == kNoMount) GTEST_SKIP() << "no tmpfs can be mounted here";
  EXPECT_EQ(status, 0);
}

// The child saves step after step and tells each one through a pipe once save() has returned.
pid_t start_saving(CheckpointStore& store, int64_t first_step, int write_end) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    for (int64_t step = first_step;; ++step) {
      // Every third one also replaces a checkpoint that exists.
      save(store, step, 50'000, 2);
      if (step % 3 == 0) save(store, step, 50'000, 2);
      if (::write(write_end, &step, sizeof(step)) != sizeof(step)) ::_exit(1);
    }
  } catch (...) {
    ::_exit(2);
  }
}

TEST_F(Checkpoint, AKillAtAnyMomentLeavesACompleteOne) {
  std::mt19937 random(1);
  int64_t told = 0;
  const Stopwatch watch;
  save(store_, 0, 50'000);
  // Long enough for a few saves on this machine, and as likely to hit each moment of one.
  const auto longest = static_cast<useconds_t>(4e6 * watch.seconds() + 20'000);
  for (int kill = 0; kill < 20; ++kill) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = start_saving(store_, told + 1, ends[1]);
    ::close(ends[1]);
    ::usleep(std::uniform_int_distribution<useconds_t>(1'000, longest)(random));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int64_t step; ::read(ends[0], &step, sizeof(step)) == sizeof(step);) told = step;
    ::close(ends[0]);

    const auto newest = store_.newest_complete();
    ASSERT_TRUE(newest) << "after kill " << kill;
    EXPECT_GE(newest->step, told);
    expect_whole(*newest);
    for (const auto& info : store_.list()) EXPECT_NO_THROW(VerifiedCheckpoint(info.path));  // none is torn
    store_.clean();
    EXPECT_EQ(entries(directory_), static_cast<int64_t>(store_.list().size()));
    told = newest->step;
  }
  EXPECT_GT(told, 0) << "no save was ever finished: the test showed nothing";
}

// Whether a child that calls save() was killed just before its call number `kill_at` (from 0) that renames or removes
// something; nullopt if no child can be traced here.
std::optional<bool> killed_at_change(CheckpointStore& store, int64_t step, int kill_at) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    save(store, step, 10, 2);
    ::_exit(0);
  }
  constexpr int kChanges[] = {SYS_rename, SYS_renameat, SYS_renameat2, SYS_unlink, SYS_unlinkat, SYS_rmdir};
  int status = 0, changes = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return std::nullopt;
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);  // or no call says that it is one
  while (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) == 0 && ::waitpid(child, &status, 0) == child) {
    if (!WIFSTOPPED(status)) return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? std::optional(false) : std::nullopt;
    __ptrace_syscall_info info = {};
    ::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info);
    const bool enters = info.op == PTRACE_SYSCALL_INFO_ENTRY;
    const auto call = static_cast<int>(info.entry.nr);
    if (!enters || std::count(std::begin(kChanges), std::end(kChanges), call) == 0 || changes++ < kill_at) continue;
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return true;
  }
  return std::nullopt;
}

// Old checkpoints go from the oldest on, each in one step: what a kill leaves under a checkpoint's name is whole, and
// nothing is missing between what it leaves.
TEST_F(Checkpoint, AKillAtAnyRemovalLeavesTheNewestWholeAndNoGap) {
  for (int64_t step = 1; step <= 5; ++step) save(store_, step);
  const Path before = run_ / "before";
  fs::copy(directory_, before, fs::copy_options::recursive);
  std::set<size_t> left;
  bool killed = true;
  for (int change = 0; killed; ++change) {
    SCOPED_TRACE(change);
    fs::remove_all(directory_);
    fs::copy(before, directory_, fs::copy_options::recursive);
    const std::optional<bool> ended = killed_at_change(store_, 6, change);
    if (!ended) GTEST_SKIP() << "processes cannot be traced here";
    killed = *ended;
    const auto checkpoints = store_.list();
    for (size_t i = 0; i < checkpoints.size(); ++i) {
      EXPECT_NO_THROW(VerifiedCheckpoint(checkpoints[i].path));
      EXPECT_EQ(checkpoints[i].step, checkpoints.back().step - static_cast<int64_t>(checkpoints.size() - 1 - i));
    }
    EXPECT_GE(store_.newest_complete()->step, 5);
    left.insert(checkpoints.size());
  }
  EXPECT_EQ(left, (std::set<size_t>{2, 3, 4, 5, 6}));  // every state between was seen
}

}  // namespace
}  // namespace loam
