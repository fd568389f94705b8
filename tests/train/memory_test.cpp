#include "loam/train/memory.h"

#include <gtest/gtest.h>

#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

namespace loam {
namespace {

constexpr int64_t kMiB = 1 << 20;

class Memory : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    testing::write_quickly(root_ / name, text);
  }
  void put_group(const std::string& name, const std::string& limit, int64_t used, int64_t cache) {
    put(name + "/memory.max", limit + "\n");
    put(name + "/memory.current", std::to_string(used) + "\n");
    put(name + "/memory.stat", "anon 5\nfile 999999999\ninactive_file " + std::to_string(cache / 2) + "\nactive_file " +
                                   std::to_string(cache - cache / 2) + "\n");
  }
  std::optional<int64_t> available() const { return available_memory(root_.path()); }
  testing::TempDir root_;
};

TEST_F(Memory, UnknownIsNotZero) { EXPECT_EQ(available(), std::nullopt); }

TEST_F(Memory, IsWhatTheMachineHasLeft) {
  put("proc/meminfo", "MemTotal:       65536 kB\nMemFree:         1024 kB\nMemAvailable:   40960 kB\n");
  put("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(available(), 40 * kMiB);
  put_group("sys/fs/cgroup", "max", 30 * kMiB, 0);
  EXPECT_EQ(available(), 40 * kMiB);
}

TEST_F(Memory, TheTightestLimitOfAllGroupsCountsAndThePageCacheIsFree) {
  put("proc/meminfo", "MemAvailable:   40960 kB\n");
  put("proc/self/cgroup", "0::/outer/inner\n");
  put_group("sys/fs/cgroup/outer/inner", std::to_string(50 * kMiB), 20 * kMiB, 0);
  EXPECT_EQ(available(), 30 * kMiB);
  put_group("sys/fs/cgroup/outer", std::to_string(30 * kMiB), 20 * kMiB, 8 * kMiB);
  EXPECT_EQ(available(), 18 * kMiB);
  put_group("sys/fs/cgroup/outer", std::to_string(30 * kMiB), 31 * kMiB, 0);
  EXPECT_EQ(available(), 0);
}

TEST_F(Memory, LimitsOfTheFirstVersion) {
  put("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/x\n0::/\n");
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", std::to_string(30 * kMiB));
  put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", std::to_string(20 * kMiB));
  put("sys/fs/cgroup/memory/x/memory.stat",
      "total_inactive_file " + std::to_string(4 * kMiB) + "\ntotal_active_file " + std::to_string(2 * kMiB) + "\n");
  EXPECT_EQ(available(), 16 * kMiB);
}

}  // namespace
}  // namespace loam
