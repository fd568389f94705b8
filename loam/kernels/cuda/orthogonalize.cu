// Muon's orthogonalization on top of the matrix product, with the norm left on the device. Legend: R rows, C columns, S
// the smaller of the two.
#include <algorithm>

#include "loam/kernels/cuda/register.h"
#include "loam/kernels/cuda/strided.cuh"
#include "loam/kernels/optimizer.h"

namespace loam::cuda {
namespace {

// x / max(norm, smallest), where squares is the norm's square.
template <int W>
struct Normalize {
  float* x;
  const double* squares;
  __device__ void operator()(const std::array<int64_t, 1>& at) const {
    constexpr double kSmallest = 1e-7;
    const double norm = sqrt(*squares);
    const auto factor = static_cast<float>(1 / (norm < kSmallest ? kSmallest : norm));  // a NaN stays one
    Pack<W> pack = load<W>(x + at[0]);
#pragma unroll
    for (int i = 0; i < W; ++i) pack.v[i] *= factor;
    store(x + at[0], pack);
  }
};

void normalize(const ExecContext& ctx, const View& x) {
  const Tensor squares = ctx.empty({sizeof(double)}, DType::u8, MemoryKind::workspace);
  auto* sum = reinterpret_cast<double*>(squares.data<uint8_t>());
  LOAM_CUDA(cudaMemsetAsync(sum, 0, sizeof(double), stream_of(ctx.stream)));
  ctx.kernels->sum_squares(ctx, {.x = x, .out = sum});
  const Strided<1> views({x});
  for_width(views.width(), [&](auto width) {
    constexpr int W = decltype(width)::value;
    for_each_group<W>(ctx, views, "orthogonalize", Normalize<W>{x.ptr<float>(), sum});
  });
}

// c += factor a b
void add_product(const ExecContext& ctx, const View& a, const View& b, float factor, const View& c) {
  ctx.kernels->matmul(ctx, {.a = a, .b = b, .c = c, .bias = {}, .alpha = factor, .accumulate = true});
}

void orthogonalize(const ExecContext& ctx, const OrthogonalizeArgs& args) {
  constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
  const auto [rows, cols] = args.x.dims<2>();
  if (rows == 0 || cols == 0) return;
  const int64_t small = std::min(rows, cols);
  const bool tall = rows > cols;
  const auto matrix = [&](int64_t r, int64_t c) { return ctx.empty({r, c}, DType::f32, MemoryKind::workspace); };
  const Tensor other = matrix(rows, cols);                                  // [R,C]
  const Tensor square = matrix(small, small), poly = matrix(small, small);  // [S,S]
  if (ctx.arena->sparse()) return;

  normalize(ctx, args.x);
  View x = args.x, next = other;
  for (int step = 0; step < args.steps; ++step) {
    ctx.kernels->matmul(ctx, {.a = x, .transpose_a = tall, .b = x, .transpose_b = !tall, .c = square, .bias = {}});
    ctx.kernels->scale(ctx, {.in = square, .factor = kB, .out = poly});
    add_product(ctx, square, square, kC, poly);
    ctx.kernels->scale(ctx, {.in = x, .factor = kA, .out = next});
    if (tall) {
      add_product(ctx, x, poly, 1, next);
    } else {
      add_product(ctx, poly, x, 1, next);
    }
    std::swap(x, next);
  }
  if (args.steps % 2 != 0) ctx.kernels->copy(ctx, {.in = x, .out = args.x});
}

}  // namespace

void register_orthogonalize_kernels(KernelTable& table) { table.orthogonalize.function = orthogonalize; }

}  // namespace loam::cuda
