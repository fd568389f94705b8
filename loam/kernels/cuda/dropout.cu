// Dropout. A thread takes the four elements that one block of random numbers is for.
#include "loam/kernels/dropout.h"

#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/register.h"

namespace loam::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void dropout_kernel(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t n,
                               const StepState* step, int64_t first_row, uint64_t key, uint32_t bound, float kept,
                               bool accumulate) {
  const int64_t row = blockIdx.y;
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (begin >= n) return;
  const PhiloxStream stream{key, static_cast<uint64_t>((step ? step->first_sample : 0) + first_row + row)};
  const auto block = stream.block(static_cast<uint64_t>(begin / 4));
  const T* from = in + row * in_stride + begin;
  T* to = out + row * out_stride + begin;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (begin + k >= n) return;
    const float value = block[static_cast<size_t>(k)] < bound ? 0 : to_float(from[k]) * kept;
    to[k] = from_float<T>(accumulate ? to_float(to[k]) + value : value);
  }
}

void dropout(const ExecContext& ctx, const DropoutArgs& a) {
  const auto [B, n] = a.in.dims<2>();
  if (B == 0 || n == 0) return;
  const uint64_t key = dropout_key(ctx, a.site);
  const uint32_t bound = dropout_bound(a.probability);
  const float kept = 1 / (1 - a.probability);
  constexpr int64_t kMostRows = 65535;
  for_float(a.in.dtype, "dropout", [&, rows = B, cols = n](auto type) {
    using T = decltype(type);
    LOAM_CHECK(rows <= kMostRows, "dropout: {} rows, at most {}", rows, kMostRows);
    const dim3 grid(static_cast<unsigned>(ceil_div(cols, 4 * kThreads)), static_cast<unsigned>(rows));
    dropout_kernel<<<grid, kThreads, 0, stream_of(ctx.stream)>>>(
        static_cast<const T*>(a.in.data), a.in.stride(0), static_cast<T*>(a.out.data), a.out.stride(0), cols, ctx.step,
        ctx.first_row, key, bound, kept, a.accumulate);
    launched("dropout");
  });
}

}  // namespace

void register_dropout_kernels(KernelTable& table) { table.dropout.function = dropout; }

}  // namespace loam::cuda
