#include <set>
#include <string>

#include "tests/harness/expect_error.h"
#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

template <class Slot>
void expect_filled(const Slot& slot, const char* name, std::set<std::string>& names) {
  EXPECT_NE(slot.function, nullptr) << name;
  EXPECT_STREQ(slot.name, name);
  EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
}

TEST(KernelTable, CpuFillsEveryEntry) {
  const KernelTable& table = cpu_kernel_table();
  std::set<std::string> names;
#define LOAM_KERNEL(kernel, Args) expect_filled(table.kernel, #kernel, names);
#include "loam/kernels/kernels.def"
#undef LOAM_KERNEL
  EXPECT_GT(names.size(), 20u);
}

TEST(KernelTable, HoleIsOneClearError) {
  const KernelTable empty;
  EXPECT_LOAM_ERROR(empty.rms_norm_fwd({}, {}), ErrorCode::kUnavailable, "rms_norm_fwd is not there for device cpu");
}

TEST(ExecContext, IsCompleteOrRefused) {
  const ExecResources r = make_exec_resources({}, 3, Numerics::exact);
  EXPECT_EQ(r.context.threads, 3);
  EXPECT_EQ(r.context.numerics, Numerics::exact);
  EXPECT_EQ(r.context.kernels, &cpu_kernel_table());
  EXPECT_EQ(r.context.empty({2, 3}, DType::bf16).bytes(), 12);
  EXPECT_LOAM_ERROR(make_exec_resources({}, 0), ErrorCode::kInvalidArgument, "threads is 0");
  EXPECT_LOAM_ERROR(make_exec_resources({DeviceKind::cuda, 1}), ErrorCode::kUnavailable, "cuda:1");
}

}  // namespace
}  // namespace loam
