#include "bench/kernels_bench.h"

#include <gtest/gtest.h>

#include <set>

#include "loam/base/error.h"

namespace loam {
namespace {

KernelsBenchOptions tiny_options(DType dtype) {
  KernelsBenchOptions options;
  options.dtype = dtype;
  options.seconds = 0;
  options.sizes.B = 2;
  options.sizes.T = 8;
  options.sizes.C = 32;
  options.sizes.H = 4;
  options.sizes.F = 64;
  options.sizes.V = 96;
  options.sizes.decoded = 16;
  options.sizes.group = 256;
  options.sizes.rotated = 1 << 14;
  options.sizes.head_rows = {5, 16};
  options.sizes.attention = {{1, 16, 2, 16}};
  return options;
}

TEST(KernelsBench, MeasuresEveryKernel) {
  const ExecResources r = make_exec_resources({}, 1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::set<std::string> kernels, names;
    bench_kernels(r.context, tiny_options(dtype), [&](const KernelsBenchResult& result) {
      kernels.insert(result.kernel);
      EXPECT_TRUE(names.insert(result.name + " " + result.variant).second) << result.name << " is there twice";
      EXPECT_GE(result.calls, 5);
      EXPECT_GT(result.best_seconds, 0);
      EXPECT_GE(result.median_seconds, result.best_seconds);
    });
#define LOAM_KERNEL(name, Args) EXPECT_TRUE(kernels.contains(#name)) << #name;
#include "loam/kernels/kernels.def"
#undef LOAM_KERNEL
  }
}

TEST(KernelsBench, CountsWhatACallHasToDo) {
  const ExecResources r = make_exec_resources({}, 1);
  KernelsBenchOptions options = tiny_options(DType::bf16);
  options.only = "up_";
  int products = 0;
  bench_kernels(r.context, options, [&](const KernelsBenchResult& result) {
    EXPECT_EQ(result.work.flops, 2.0 * (2 * 8) * 32 * 64) << result.name;
    ++products;
  });
  EXPECT_GE(products, 3);
}

}  // namespace
}  // namespace loam
