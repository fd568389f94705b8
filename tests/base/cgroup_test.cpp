#include "loam/base/cgroup.h"

#include <gtest/gtest.h>

#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

namespace loam {
namespace {

class ControlGroups : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    testing::write_quickly(root_ / name, text);
  }
  std::optional<int64_t> quota() const { return cpu_quota(root_.path()); }
  testing::TempDir root_;
};

TEST_F(ControlGroups, WithoutThemThereIsNoQuota) { EXPECT_EQ(quota(), std::nullopt); }

TEST_F(ControlGroups, AQuotaIsRoundedUp) {
  put("proc/self/cgroup", "0::/\n");
  const std::pair<const char*, std::optional<int64_t>> kCases[] = {
      {"max 100000\n", std::nullopt}, {"200000 100000\n", 2},       {"200001 100000\n", 3}, {"150000 100000\n", 2},
      {"1000 100000\n", 1},           {"50000 25000\n", 2},         {"", std::nullopt},     {"100000\n", std::nullopt},
      {"0 100000\n", std::nullopt},   {"100000 0\n", std::nullopt},
  };
  for (const auto& [text, cores] : kCases) {
    put("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(quota(), cores) << text;
  }
}

TEST_F(ControlGroups, TheTightestQuotaOfAllGroupsCounts) {
  put("proc/self/cgroup", "0::/outer/inner\n");
  put("sys/fs/cgroup/outer/inner/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota(), 8);
  put("sys/fs/cgroup/outer/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4);
  put("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 4);
}

// In a container the host's names of groups are not there.
TEST_F(ControlGroups, QuotasOfTheFirstVersion) {
  put("proc/self/cgroup", "7:cpuacct,cpu:/docker/x\n4:memory:/docker/x\n3:cpuset:/docker/x\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota(), 3);
}

}  // namespace
}  // namespace loam
