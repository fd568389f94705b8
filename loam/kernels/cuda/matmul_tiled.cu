// Our own matrix product. Legend as in matmul.h.
//
// A block of four warps makes a tile of 64 x 64 elements of c. Of op(a) and op(b) it takes 64 bytes of depth at a time
// into shared memory, asynchronously, up to three steps ahead. A tile of an operand is kept as it lies in memory: lines
// along K, or lines across. Every element is one sum over K in ascending order, whatever M, N and its place are: of f32
// by fused multiply-add, of 16 bits by the tensor cores' mma.m16n8k16.
#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/matmul.h"
#include "loam/kernels/cuda/tile/mma.cuh"

namespace loam::cuda {
namespace {

constexpr int kThreads = 128, kTile = 64, kStages = 4;
template <class T>
constexpr int kDepth = 64 / sizeof(T);
template <class T>
constexpr int kPer = 16 / sizeof(T);  // elements of one copy

// A tile of an operand in shared memory: `lines` lines of `width` elements, set apart so that eight neighbouring lines
// meet all banks.
template <class T, bool kAlongK>
struct Tile {
  static constexpr int lines = kAlongK ? kTile : kDepth<T>, width = kAlongK ? kDepth<T> : kTile;
  static constexpr int pitch = width + kPer<T>, size = lines * pitch;
};

// op(a) [rows,K] or the transpose of op(b) [rows,K], in memory lines of either axis.
struct Operand {
  const void* data;
  int64_t stride;  // between lines, in elements
  int64_t rows;
  bool wide;  // lines start at multiples of 16 bytes
};

struct Output {
  void* c;  // [M,N]
  int64_t stride, m, n;
  const void* bias;  // [N] or null
  int64_t bias_stride;
  bool c_is_f32, bias_is_f32, accumulate;
  float alpha;

  // T: of c and bias where they are not f32.
  template <class T>
  __device__ void put(int64_t row, int64_t col, float sum) const {
    if (row >= m || col >= n) return;
    const int64_t at = row * stride + col, b = col * bias_stride;
    float value = alpha * sum;
    if (accumulate) value += c_is_f32 ? static_cast<float*>(c)[at] : to_float(static_cast<T*>(c)[at]);
    if (bias) value += bias_is_f32 ? static_cast<const float*>(bias)[b] : to_float(static_cast<const T*>(bias)[b]);
    if (c_is_f32) {
      static_cast<float*>(c)[at] = value;
    } else {
      static_cast<T*>(c)[at] = from_float<T>(value);
    }
  }
};

// 16 bytes, of which the first `bytes` come from memory and the others are 0.
__device__ inline void copy_async(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kOpen>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

// The tile of rows [row, row + 64) and K [k, k + depth); what lies outside of the operand is 0.
template <class T, bool kAlongK>
__device__ void fetch(const Operand& from, int64_t row, int64_t k, int64_t K, T* to) {
  using Shape = Tile<T, kAlongK>;
  constexpr int kChunks = Shape::width / kPer<T>;
  const int64_t first_line = kAlongK ? row : k, first = kAlongK ? k : row;
  const int64_t lines = (kAlongK ? from.rows : K) - first_line, width = (kAlongK ? K : from.rows) - first;
  const T* corner = static_cast<const T*>(from.data) + first_line * from.stride + first;
#pragma unroll
  for (int i = threadIdx.x; i < Shape::lines * kChunks; i += kThreads) {
    const int line = i / kChunks, at = i % kChunks * kPer<T>;
    const int64_t left = line < lines ? width - at : 0;
    const int count = left < 0 ? 0 : left < kPer<T> ? static_cast<int>(left) : kPer<T>;
    const T* source = corner + line * from.stride + at;
    T* target = to + line * Shape::pitch + at;
    if (from.wide) {
      copy_async(target, count > 0 ? source : from.data, count * static_cast<int>(sizeof(T)));
    } else {
#pragma unroll
      for (int j = 0; j < kPer<T>; ++j) target[j] = j < count ? source[j] : from_float<T>(0);
    }
  }
}

// The sums of a thread, for each type in the form of its arithmetic. A and B: whether the tiles of a and b lie along K.
// Of 16 bits: four warps as 2 x 2, each with 32 x 32 elements: 2 x 4 products of 16 x 8.
template <class T, bool A, bool B>
struct Sums {
  float sum[2][4][4] = {};

  // Rows [row, row + 16) and K [k, k + 16) as four 8 x 8 matrices: rows 0-7, rows 8-15, both again for the second half
  // of K. A lane gives the address of one line of one of them.
  template <bool kAlongK>
  static __device__ void load_fragment(const T* tile, int row, int k, uint32_t (&to)[4]) {
    const int lane = threadIdx.x % kWarp, line = lane % 8, second_rows = lane / 8 % 2 * 8, second_k = lane / 16 * 8;
    const int across = row + second_rows, along = k + second_k;
    constexpr int pitch = Tile<T, kAlongK>::pitch;
    if constexpr (kAlongK) {
      load_matrices(to, shared_address(tile + (across + line) * pitch + along));
    } else {
      load_matrices_transposed(to, shared_address(tile + (along + line) * pitch + across));
    }
  }

  __device__ void take(const T* a, const T* b) {
    const int warp = threadIdx.x / kWarp, row = warp / 2 * 32, col = warp % 2 * 32;
#pragma unroll
    for (int k = 0; k < kDepth<T>; k += 16) {
      uint32_t of_a[2][4], of_b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        load_fragment<A>(a, row + 16 * i, k, of_a[i]);
        load_fragment<B>(b, col + 16 * i, k, of_b[i]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float(&d)[4] = sum[i][j];
          mma<T>(d[0], d[1], d[2], d[3], of_a[i], of_b[j / 2][j % 2], of_b[j / 2][j % 2 + 2]);
        }
      }
    }
  }

  __device__ void put(const Output& out, int64_t row, int64_t col) const {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    row += warp / 2 * 32 + lane / 4, col += warp % 2 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) out.put<T>(row + 16 * i + e / 2 * 8, col + 8 * j + e % 2, sum[i][j][e]);
      }
    }
  }
};

// Threads as 16 x 8, each with 4 x 8 elements. The i-th row of a thread, of kLanes that lie beside each other, is where
// the lanes' loads meet different banks.
template <bool A, bool B>
struct Sums<float, A, B> {
  static constexpr int kRows = 4, kCols = 8, kRowLanes = kTile / kRows, kColLanes = kTile / kCols;
  float sum[kRows][kCols] = {};

  template <bool kAlongK, int kLanes>
  static __device__ int place(int lane, int i) {
    return kAlongK ? lane + kLanes * i : i / 4 * (4 * kLanes) + 4 * lane + i % 4;
  }
  // to[k][i]: the thread's `kCount` rows over four steps of K.
  template <bool kAlongK, int kLanes, int kCount>
  static __device__ void load_fragment(const float* tile, int lane, int k, float (&to)[4][kCount]) {
    constexpr int pitch = Tile<float, kAlongK>::pitch;
    if constexpr (kAlongK) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const Pack<4> pack = load<4>(tile + place<true, kLanes>(lane, i) * pitch + k);
#pragma unroll
        for (int j = 0; j < 4; ++j) to[j][i] = pack.v[j];
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const Pack<4> pack = load<4>(tile + (k + j) * pitch + place<false, kLanes>(lane, i));
#pragma unroll
          for (int e = 0; e < 4; ++e) to[j][i + e] = pack.v[e];
        }
      }
    }
  }

  __device__ void take(const float* a, const float* b) {
#pragma unroll
    for (int k = 0; k < kDepth<float>; k += 4) {
      float of_a[4][kRows], of_b[4][kCols];
      load_fragment<A, kRowLanes>(a, threadIdx.x / kColLanes, k, of_a);
      load_fragment<B, kColLanes>(b, threadIdx.x % kColLanes, k, of_b);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int c = 0; c < kCols; ++c) sum[r][c] = fmaf(of_a[j][r], of_b[j][c], sum[r][c]);
        }
      }
    }
  }

  __device__ void put(const Output& out, int64_t row, int64_t col) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        out.put<float>(row + place<A, kRowLanes>(threadIdx.x / kColLanes, r),
                       col + place<B, kColLanes>(threadIdx.x % kColLanes, c), sum[r][c]);
      }
    }
  }
};

template <class T, bool A, bool B>
__global__ __launch_bounds__(kThreads) void tiled_kernel(Operand a, Operand b, int64_t K, Output out) {
  __shared__ alignas(16) T tiles_a[kStages][Tile<T, A>::size], tiles_b[kStages][Tile<T, B>::size];
  const int64_t down = (out.m + kTile - 1) / kTile;
  const int64_t row = blockIdx.x % down * kTile, col = blockIdx.x / down * kTile;
  const int64_t steps = (K + kDepth<T> - 1) / kDepth<T>;
  const auto start = [&](int64_t step) {
    if (step < steps) {
      fetch<T, A>(a, row, step * kDepth<T>, K, tiles_a[step % kStages]);
      fetch<T, B>(b, col, step * kDepth<T>, K, tiles_b[step % kStages]);
    }
    close_copies();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) start(step);
  Sums<T, A, B> sums;
  for (int64_t step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // this step's tiles are there, and nobody reads those of the last step any more
    start(step + kStages - 1);
    sums.take(tiles_a[step % kStages], tiles_b[step % kStages]);
  }
  sums.put(out, row, col);
}

bool is_wide(const View& v) {
  const auto address = reinterpret_cast<uintptr_t>(v.data);
  return address % 16 == 0 && (v.dim(0) <= 1 || v.stride(0) * dtype_size(v.dtype) % 16 == 0);
}

template <class T, bool A, bool B>
void launch(const ExecContext& ctx, const MatmulArgs& args) {
  const auto [m, n] = args.c.dims<2>();
  const Operand a{args.a.data, args.a.stride(0), m, is_wide(args.a)};
  const Operand b{args.b.data, args.b.stride(0), n, is_wide(args.b)};
  const Output out{.c = args.c.data,
                   .stride = args.c.stride(0),
                   .m = m,
                   .n = n,
                   .bias = args.bias.data,
                   .bias_stride = args.bias ? args.bias.stride(0) : 0,
                   .c_is_f32 = args.c.dtype == DType::f32,
                   .bias_is_f32 = args.bias.dtype == DType::f32,
                   .accumulate = args.accumulate,
                   .alpha = args.alpha};
  const auto blocks = static_cast<unsigned>(ceil_div(m, kTile) * ceil_div(n, kTile));
  tiled_kernel<T, A, B>
      <<<blocks, kThreads, 0, stream_of(ctx.stream)>>>(a, b, args.a.dim(args.transpose_a ? 0 : 1), out);
  launched("matmul");
}

// A row of c [N] from one of sums; a thread has W neighbours.
template <class T, int W>
__global__ void finish_kernel(const float* sums, int64_t sums_stride, T* c, int64_t stride, int64_t n, bool accumulate,
                              AnyFloat bias, int64_t bias_stride) {
  const int64_t row = blockIdx.x;
  for (int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W; col < n;
       col += int64_t{gridDim.y} * blockDim.x * W) {
    Pack<W> sum = load<W>(sums + row * sums_stride + col);
    T* to = c + row * stride + col;
    if (accumulate) {
      const Pack<W> old = load<W>(to);
#pragma unroll
      for (int i = 0; i < W; ++i) sum.v[i] += old.v[i];
    }
#pragma unroll
    for (int i = 0; i < W; ++i) sum.v[i] += load<1>(bias + (col + i) * bias_stride).v[0];
    store(to, sum);
  }
}

}  // namespace

void tiled_matmul(const ExecContext& ctx, const MatmulArgs& args) {
  if (ctx.arena->sparse()) return;
  if (args.c.numel() == 0) return;
  for_float(args.a.dtype, "matmul", [&](auto type) {
    using T = decltype(type);
    if (args.transpose_a) {
      args.transpose_b ? launch<T, false, true>(ctx, args) : launch<T, false, false>(ctx, args);
    } else {
      args.transpose_b ? launch<T, true, true>(ctx, args) : launch<T, true, false>(ctx, args);
    }
  });
}

void finish_matmul(const ExecContext& ctx, const View& sums, const MatmulArgs& args) {
  if (ctx.arena->sparse()) return;
  const auto [m, n] = args.c.dims<2>();
  if (m == 0 || n == 0) return;
  for_float(args.c.dtype, "matmul", [&](auto type) {
    using T = decltype(type);
    const int width = pack_width(n, {{args.c.data, sizeof(T), args.c.stride(0)}, {sums.data, 4, sums.stride(0)}});
    for_width(width, [&](auto w) {
      constexpr int W = decltype(w)::value;
      constexpr int kFinishThreads = 256;
      const dim3 grid(static_cast<unsigned>(m), grid_for(n, kFinishThreads * W, 64));
      finish_kernel<T, W><<<grid, kFinishThreads, 0, stream_of(ctx.stream)>>>(
          sums.ptr<float>(), sums.stride(0), static_cast<T*>(args.c.data), args.c.stride(0), n, args.accumulate,
          AnyFloat(args.bias), args.bias.stride(0));
      launched("matmul");
    });
  });
}

}  // namespace loam::cuda
