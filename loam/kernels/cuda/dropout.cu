// Dropout. A thread takes the four elements that one block of random numbers is for.
#include "loam/kernels/dropout.h"

#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/register.h"

namespace loam::cuda {
namespace {

constexpr int kThreads = 256;

// kWide: rows whose four elements are one access.
template <class T, bool kWide>
__global__ void dropout_kernel(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t rows, int64_t n,
                               const StepState* step, int64_t first_row, uint64_t key, uint32_t bound, float kept,
                               bool accumulate) {
  constexpr int W = kWide ? 4 : 1;
  const int64_t first_sample = (step ? step->first_sample : 0) + first_row;
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (begin >= n) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const PhiloxStream stream{key, static_cast<uint64_t>(first_sample + row)};
    const auto block = stream.block(static_cast<uint64_t>(begin / 4));
    const T* from = in + row * in_stride + begin;
    T* to = out + row * out_stride + begin;
#pragma unroll
    for (int k = 0; k < 4; k += W) {
      if (begin + k >= n) break;
      Pack<W> pack = load<W>(from + k);
#pragma unroll
      for (int i = 0; i < W; ++i) pack.v[i] = block[static_cast<size_t>(k + i)] < bound ? 0 : pack.v[i] * kept;
      store_or_add<W>(to + k, pack, accumulate);
    }
  }
}

void dropout(const ExecContext& ctx, const DropoutArgs& a) {
  const auto [B, n] = a.in.dims<2>();
  if (B == 0 || n == 0) return;
  const uint64_t key = dropout_key(ctx, a.site);
  const uint32_t bound = dropout_bound(a.probability);
  const float kept = 1 / (1 - a.probability);
  const int64_t in_stride = a.in.stride(0), out_stride = a.out.stride(0);
  const dim3 grid(static_cast<unsigned>(ceil_div(n, 4 * kThreads)), static_cast<unsigned>(std::min<int64_t>(B, 65535)));
  for_float(a.in.dtype, "dropout", [&, rows = B, cols = n](auto type) {
    using T = decltype(type);
    const int width = pack_width(cols, {{a.in.data, sizeof(T), in_stride}, {a.out.data, sizeof(T), out_stride}});
    const auto kernel = width == 1 ? dropout_kernel<T, false> : dropout_kernel<T, true>;
    kernel<<<grid, kThreads, 0, stream_of(ctx.stream)>>>(static_cast<const T*>(a.in.data), in_stride,
                                                         static_cast<T*>(a.out.data), out_stride, rows, cols, ctx.step,
                                                         ctx.first_row, key, bound, kept, a.accumulate);
    launched("dropout");
  });
}

}  // namespace

void register_dropout_kernels(KernelTable& table) { table.dropout.function = dropout; }

}  // namespace loam::cuda
