#include "loam/kernels/cpu/gemm.h"

#include <algorithm>
#include <limits>

#include "loam/base/parallel_for.h"
#include "loam/kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>

#include "loam/kernels/cpu/gemm-inl.h"

#ifndef LOAM_KERNELS_CPU_GEMM_ONCE_
#define LOAM_KERNELS_CPU_GEMM_ONCE_
namespace loam::cpu {
namespace {

// K is summed in blocks of at most this length.
constexpr int64_t kBlockK = 512;
// Rows of A packed at a time: kBlockM x kBlockK floats stay in the L2 cache. A multiple of every kMr.
constexpr int64_t kBlockM = 192;
// Bounds of one task's part of c. Sizes of tasks are multiples of 96 columns and 12 rows, whole tiles for every
// instruction set.
constexpr int64_t kTaskColumns = 1152, kTaskRowsNarrow = 576;
constexpr int64_t kColumnUnit = 96, kRowUnit = 12;

struct Problem {
  int64_t m, n, k;
  DType dtype;  // of a and b
  Operand a, b;
  const float* bias;  // padded to whole tiles, or null
  float alpha;
  bool add;  // into what c holds
  float* c;
  int64_t c_stride;
};

// A part of c, and the memory to make it in.
struct Block {
  int64_t row, rows, column, columns;
  float* packed_a;  // kBlockM x kBlockK
  float* packed_b;  // kBlockK x columns, rounded up to whole panels
};

}  // namespace
}  // namespace loam::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace loam::cpu {
namespace HWY_NAMESPACE {
namespace {

using namespace loam::HWY_NAMESPACE;  // NOLINT: the vector helpers of this instruction set

// A panel of B (kDepth x kNr floats) stays in the L1 cache beside two panels of A: 32 KiB, or 24 KiB for the wider
// instruction sets.
constexpr int64_t kDepth = kNr <= 16 ? kBlockK : 192;

// Packs rows [r, r + rows) and [k, k + depth) of an operand into panels of `width` rows.
template <class T>
void pack(const Operand& from, int64_t r, int64_t rows, int64_t k, int64_t depth, int64_t width, float* to) {
  const T* first = static_cast<const T*>(from.data) + r * from.r_stride + k * from.k_stride;
  for (int64_t p = 0; p < rows; p += width, to += width * depth) {
    const int64_t some = std::min(width, rows - p);
    if (from.k_stride == 1) {
      pack_along_k(first + p * from.r_stride, from.r_stride, some, depth, to, width);
    } else {
      pack_across_k(first + p * from.r_stride, from.k_stride, some, depth, to, width);
    }
  }
}

template <class T>
void multiply_block(const Problem& problem, const Block& block) {
  int64_t k = 0;
  do {  // once for K = 0: the bias, or zeros
    const int64_t depth = std::min(kDepth, problem.k - k);
    pack<T>(problem.b, block.column, block.columns, k, depth, kNr, block.packed_b);
    for (int64_t i = 0; i < block.rows; i += kBlockM) {
      const int64_t rows = std::min(kBlockM, block.rows - i);
      pack<T>(problem.a, block.row + i, rows, k, depth, kMr, block.packed_a);
      for (int64_t j = 0; j < block.columns; j += kNr) {
        const int64_t columns = std::min(kNr, block.columns - j);
        const TileEnd end{problem.alpha, problem.add || k > 0,
                          problem.bias && k == 0 ? problem.bias + block.column + j : nullptr};
        float* c = problem.c + (block.row + i) * problem.c_stride + block.column + j;
        for (int64_t t = 0; t < rows; t += kMr) {
          tile_any<Layout::panel, Layout::panel>(std::min(kMr, rows - t), depth, {block.packed_a + t * depth},
                                                 {block.packed_b + j * depth}, c + t * problem.c_stride,
                                                 problem.c_stride, columns, end);
        }
      }
    }
    k += depth;
  } while (k < problem.k);
}

void multiply(const Problem& problem, const Block& block) {
  visit_float(problem.dtype, "matmul", [&](auto type) { multiply_block<decltype(type)>(problem, block); });
}

// sums[m, j] = x[m] . w[j] for R rows of w and M rows of x, both contiguous along k.
template <int R, int M, class T>
HWY_INLINE void dot_block(int64_t k, const float* x, int64_t x_stride, const T* w, int64_t w_stride, float sums[M][R]) {
  const FloatTag d;
  FloatVec sum[M][R];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[m][r] = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    FloatVec wr[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) wr[r] = load_f32(d, w + r * w_stride + i);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const FloatVec xm = hn::LoadU(d, x + m * x_stride + i);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[m][r] = hn::MulAdd(xm, wr[r], sum[m][r]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int r = 0; r < R; ++r) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[m][r]));
      for (int64_t j = i; j < k; ++j) total += x[m * x_stride + j] * static_cast<float>(w[r * w_stride + j]);
      sums[m][r] = total;
    }
  }
}

// c[0:M, columns] for M <= 4 rows of x.
template <int M, class T>
HWY_INLINE void skinny_rows(int64_t k, const float* x, const T* w, int64_t w_stride, int64_t columns, float* out,
                            int64_t out_stride) {
  constexpr int kRows = M <= 2 ? 4 : 2;
  int64_t j = 0;
  for (; j + kRows <= columns; j += kRows) {
    float sums[M][kRows];
    dot_block<kRows, M>(k, x, k, w + j * w_stride, w_stride, sums);
    for (int m = 0; m < M; ++m) {
      for (int r = 0; r < kRows; ++r) out[m * out_stride + j + r] = sums[m][r];
    }
  }
  for (; j < columns; ++j) {
    float sums[M][1];
    dot_block<1, M>(k, x, k, w + j * w_stride, w_stride, sums);
    for (int m = 0; m < M; ++m) out[m * out_stride + j] = sums[m][0];
  }
}

// x [m, k] contiguous f32, w [columns, k], out [m, columns] contiguous f32.
template <class T>
void skinny_of(int64_t m, int64_t k, const float* x, const T* w, int64_t w_stride, int64_t columns, float* out) {
  for (; m >= 4; m -= 4, x += 4 * k, out += 4 * columns) skinny_rows<4>(k, x, w, w_stride, columns, out, columns);
  if (m == 3) skinny_rows<3>(k, x, w, w_stride, columns, out, columns);
  if (m == 2) skinny_rows<2>(k, x, w, w_stride, columns, out, columns);
  if (m == 1) skinny_rows<1>(k, x, w, w_stride, columns, out, columns);
}
void skinny(DType dtype, int64_t m, int64_t k, const float* x, const void* w, int64_t w_stride, int64_t columns,
            float* out) {
  visit_float(dtype, "matmul",
              [&](auto type) { skinny_of(m, k, x, static_cast<const decltype(type)*>(w), w_stride, columns, out); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace loam::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam::cpu {
namespace {

HWY_EXPORT(multiply);
HWY_EXPORT(skinny);

// How c is cut into tasks.
struct Grid {
  int64_t rows, columns;  // of one task
  int64_t down, across;   // number of tasks
};

// The cut that takes the least time: the share of the busiest thread, where packing an element costs as much as
// kPackCost multiply-adds.
Grid make_grid(int64_t m, int64_t n, int64_t k, int threads, bool narrow_result) {
  const int64_t most_rows = narrow_result ? kTaskRowsNarrow : m;
  // With few rows a packed panel is used little, so it is kept small enough for the L2 cache.
  const int64_t most_columns = m <= 4 * kRowUnit ? 2 * kColumnUnit : kTaskColumns;
  const int64_t column_unit = kColumnUnit / (n < 4 * kColumnUnit ? 3 : 1);
  const int64_t least_down = ceil_div(m, most_rows), least_across = ceil_div(n, most_columns);
  // Below this much work a second thread costs more than it brings.
  constexpr double kWorthSharing = 1 << 17;
  const bool share = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) > kWorthSharing;
  const int64_t workers = share ? threads : 1;
  constexpr int64_t kPackCost = 16;
  Grid best{};
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  const int64_t most_down = std::max(least_down, std::min(ceil_div(m, kRowUnit), 2 * workers - 1));
  for (int64_t down = least_down; down <= most_down; ++down) {
    const int64_t least_rounds = ceil_div(down * least_across, workers);
    for (int64_t rounds = least_rounds; rounds < least_rounds + 3; ++rounds) {
      const int64_t across = std::clamp(rounds * workers / down, least_across, ceil_div(n, column_unit));
      Grid grid{};
      grid.rows = round_up(ceil_div(m, down), kRowUnit);
      grid.columns = round_up(ceil_div(n, across), column_unit);
      grid.down = ceil_div(m, grid.rows);
      grid.across = ceil_div(n, grid.columns);
      const int64_t cost = ceil_div(grid.down * grid.across, workers) *
                           (grid.rows * grid.columns + kPackCost * (grid.rows + grid.columns));
      if (cost < best_cost) best = grid, best_cost = cost;
    }
  }
  return best;
}

float element(const View& view, int64_t index) {
  return visit_float(view.dtype, "matmul",
                     [&](auto type) { return static_cast<float>(view.ptr<decltype(type)>()[index]); });
}

// Rounds a finished block of f32 sums into a result of 16 bits.
template <class T>
void finish(const float* from, int64_t rows, int64_t columns, int64_t from_stride, T* to, int64_t stride, bool add) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* source = from + i * from_stride;
    T* target = to + i * stride;
    for (int64_t j = 0; j < columns; ++j) {
      target[j] = T(add ? source[j] + static_cast<float>(target[j]) : source[j]);
    }
  }
}

}  // namespace

Tensor padded_bias(const ExecContext& ctx, const View& bias, int64_t n) {
  if (!bias) return {};
  Tensor padded = ctx.empty({round_up(n, kColumnUnit)}, DType::f32, MemoryKind::workspace);
  float* to = padded.data<float>();
  for (int64_t j = 0; j < padded.numel(); ++j) to[j] = j < n ? element(bias, j * bias.stride(0)) : 0.0f;
  return padded;
}

void gemm(const ExecContext& ctx, const MatmulArgs& args) {
  const int64_t m = args.c.dim(0), n = args.c.dim(1);  // plain: clang cannot share bindings with OpenMP loops
  if (m == 0 || n == 0) return;
  const int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  const bool narrow_result = args.c.dtype != DType::f32;
  const Grid grid = make_grid(m, n, k, ctx.threads, narrow_result);
  const Tensor bias = padded_bias(ctx, args.bias, n);

  Problem problem{};
  problem.m = m, problem.n = n, problem.k = k, problem.dtype = args.a.dtype;
  problem.a = args.transpose_a ? Operand{args.a.data, 1, args.a.stride(0)} : Operand{args.a.data, args.a.stride(0), 1};
  problem.b = args.transpose_b ? Operand{args.b.data, args.b.stride(0), 1} : Operand{args.b.data, 1, args.b.stride(0)};
  problem.bias = bias ? bias.data<float>() : nullptr;
  problem.alpha = args.alpha;
  problem.add = args.accumulate && !narrow_result;
  problem.c = narrow_result ? nullptr : args.c.ptr<float>();
  problem.c_stride = args.c.stride(0);

  const int threads = static_cast<int>(std::min<int64_t>(ctx.threads, grid.down * grid.across));
  const int64_t depth = std::min(k, kBlockK);
  const int64_t a_floats = round_up(std::min(grid.rows, kBlockM), kRowUnit) * depth + 16;
  const int64_t b_floats = grid.columns * depth + 16;
  const int64_t c_floats = narrow_result ? grid.rows * grid.columns : 0;
  const Tensor workspace =
      ctx.empty({threads, round_up(a_floats + b_floats + c_floats, 16)}, DType::f32, MemoryKind::workspace);
  if (ctx.arena->sparse()) return;

  parallel_tasks(threads, grid.down * grid.across, [&](int64_t task, int thread) {
    float* memory = workspace.data<float>() + thread * workspace.dim(1);
    Block block{};
    block.row = task % grid.down * grid.rows;
    block.rows = std::min(grid.rows, m - block.row);
    block.column = task / grid.down * grid.columns;
    block.columns = std::min(grid.columns, n - block.column);
    block.packed_a = memory;
    block.packed_b = memory + a_floats;
    if (!narrow_result) return HWY_DYNAMIC_DISPATCH(multiply)(problem, block);
    Problem local = problem;
    local.c_stride = grid.columns;
    local.c = memory + a_floats + b_floats - (block.row * local.c_stride + block.column);
    HWY_DYNAMIC_DISPATCH(multiply)(local, block);
    visit_float(args.c.dtype, "matmul", [&](auto type) {
      finish(memory + a_floats + b_floats, block.rows, block.columns, grid.columns,
             args.c.ptr<decltype(type)>() + block.row * args.c.stride(0) + block.column, args.c.stride(0),
             args.accumulate);
    });
  });
}

void skinny_gemm(const ExecContext& ctx, const MatmulArgs& args) {
  const int64_t m = args.c.dim(0), n = args.c.dim(1);  // plain: clang cannot share bindings with OpenMP loops
  if (m == 0 || n == 0) return;
  const int64_t k = args.a.dim(1), w_stride = args.b.stride(0);
  const Tensor x = ctx.empty({m, k}, DType::f32, MemoryKind::workspace);
  if (ctx.arena->sparse()) return;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < k; ++j) x.data<float>()[i * k + j] = element(args.a, i * args.a.stride(0) + j);
  }
  const int64_t w_bytes = dtype_size(args.b.dtype);
  constexpr int64_t kStrip = 64, kWorthSharing = 1 << 15;
  const int64_t grain = std::max(kStrip, kWorthSharing / std::max(k, int64_t{1}) + 1);
  parallel_for(ctx.threads, n, grain, [&](int64_t begin, int64_t end, int) {
    float sums[kSkinnyRows * kStrip];
    for (int64_t j = begin; j < end; j += kStrip) {
      const int64_t columns = std::min(kStrip, end - j);
      HWY_DYNAMIC_DISPATCH(skinny)
      (args.b.dtype, m, k, x.data<float>(), static_cast<const char*>(args.b.data) + j * w_stride * w_bytes, w_stride,
       columns, sums);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t s = 0; s < columns; ++s) {
          const int64_t at = i * args.c.stride(0) + j + s;
          float value = args.alpha * sums[i * columns + s];
          if (args.bias) value += element(args.bias, (j + s) * args.bias.stride(0));
          if (args.accumulate) value += element(args.c, at);
          visit_float(args.c.dtype, "matmul",
                      [&](auto type) { args.c.ptr<decltype(type)>()[at] = decltype(type)(value); });
        }
      }
    }
  });
}

}  // namespace loam::cpu
#endif  // HWY_ONCE
