#include "loam/train/peaks.h"

#include <algorithm>

#include "loam/base/clock.h"
#include "loam/kernels/kernel_table.h"
#include "loam/train/trainer.h"

namespace loam {
namespace {

// Bytes read and written a second by the best of several copies.
double measure_copy_rate(const ExecContext& ctx) {
  const int64_t elements = int64_t{1} << (ctx.handles ? 28 : 25);  // 1 GiB or 128 MiB
  const auto buffer = [&] {
    Tensor t = ctx.empty({elements}, DType::f32, MemoryKind::workspace);
    ctx.kernels->fill(ctx, {t, 0.5f});
    return t;
  };
  const Tensor from = buffer(), to = buffer();
  double best = 1e30;
  for (int i = 0; i < 8; ++i) {
    const Stopwatch watch;
    ctx.kernels->copy(ctx, {from, to});
    if (ctx.handles) ctx.handles->synchronize();
    if (i > 0) best = std::min(best, watch.seconds());
  }
  return static_cast<double>(from.bytes() + to.bytes()) / best;
}

}  // namespace

DevicePeaks measure_peaks(const ExecContext& context) {
  ExecContext ctx = context;
  ctx.profile = nullptr;
  return {measure_matmul_rate(ctx, ComputeDtype::f32), measure_matmul_rate(ctx, ComputeDtype::bf16),
          measure_copy_rate(ctx)};
}

}  // namespace loam
