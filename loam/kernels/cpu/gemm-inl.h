// The register tile under matmul and attention: R rows of A times a packed panel of B, kNr columns wide. Included once
// for each instruction set.
//
// Every element of a result is one chain of multiply-adds in order of k, whatever the tile's height and whichever rows
// stand beside it: a row's bits do not depend on the other rows.
#if defined(LOAM_KERNELS_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOAM_KERNELS_CPU_GEMM_INL_H_
#undef LOAM_KERNELS_CPU_GEMM_INL_H_
#else
#define LOAM_KERNELS_CPU_GEMM_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "loam/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr int64_t kLanes = hn::MaxLanes(FloatTag());

// kMr x kNr accumulators fill the vector registers: 6 x 2 vectors of 16 registers, 12 x 2 of 32.
inline constexpr int64_t kMr = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
inline constexpr int64_t kNr = 2 * kLanes;
inline constexpr int64_t kLine = 16;  // floats of a cache line

// How an operand of a tile is stored. A: a[r * stride + k] (rows), a[k * stride + r] (columns) or columns with stride
// kMr (panel). B: b[k * stride + j] (rows), or that with stride kNr (panel).
enum class Layout { rows, columns, panel };

struct TileOperand {
  const float* data;
  int64_t stride = 0;  // unused for a panel
};

// What happens to a finished sum: c = alpha * sum (+ bias) (+ c).
struct TileEnd {
  float alpha = 1;
  bool add = false;
  const float* bias = nullptr;  // of the tile's first column; kNr readable
};

// c[0:R, 0:kNr] from R rows of A and kNr columns of B, over k.
template <int R, Layout kA, Layout kB>
HWY_INLINE void tile(int64_t k, TileOperand a_operand, TileOperand b_operand, float* HWY_RESTRICT c, int64_t c_stride,
                     const TileEnd& end) {
  const FloatTag d;
  const float* HWY_RESTRICT a = a_operand.data;
  const float* HWY_RESTRICT b = b_operand.data;
  const int64_t a_stride = kA == Layout::panel ? kMr : a_operand.stride;
  const int64_t b_stride = kB == Layout::panel ? kNr : b_operand.stride;
  FloatVec sum[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    sum[r][0] = sum[r][1] = hn::Zero(d);
    // A large c lies in memory: its lines come while the sums are made.
    if constexpr (kA == Layout::panel) {
      for (int64_t j = 0; j < kNr; j += kLine) hwy::Prefetch(c + r * c_stride + j);
    }
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < k; ++i) {
    const FloatVec b0 = hn::LoadU(d, b + i * b_stride);
    const FloatVec b1 = hn::LoadU(d, b + i * b_stride + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const FloatVec ar = hn::Set(d, kA == Layout::rows ? a[r * a_stride + i] : a[i * a_stride + r]);
      sum[r][0] = hn::MulAdd(ar, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(ar, b1, sum[r][1]);
    }
  }
  const FloatVec alpha = hn::Set(d, end.alpha);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const FloatVec bias = end.bias ? hn::LoadU(d, end.bias + half * kLanes) : hn::Zero(d);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      float* out = c + r * c_stride + half * kLanes;
      FloatVec value = hn::MulAdd(alpha, sum[r][half], bias);
      if (end.add) value = hn::Add(value, hn::LoadU(d, out));
      hn::StoreU(value, d, out);
    }
  }
}

// The same for `columns` <= kNr columns of c: unless whole, the tile is made beside and its valid part copied.
template <int R, Layout kA, Layout kB>
HWY_NOINLINE void tile_columns(int64_t k, TileOperand a, TileOperand b, float* c, int64_t c_stride, int64_t columns,
                               const TileEnd& end) {
  if (columns == kNr) return tile<R, kA, kB>(k, a, b, c, c_stride, end);
  HWY_ALIGN float beside[R * kNr] = {};
  const size_t bytes = static_cast<size_t>(columns) * sizeof(float);
  if (end.add) {
    for (int r = 0; r < R; ++r) std::memcpy(beside + r * kNr, c + r * c_stride, bytes);
  }
  tile<R, kA, kB>(k, a, b, beside, kNr, end);
  for (int r = 0; r < R; ++r) std::memcpy(c + r * c_stride, beside + r * kNr, bytes);
}

// And for `rows` <= kMr rows.
template <Layout kA, Layout kB>
HWY_INLINE void tile_any(int64_t rows, int64_t k, TileOperand a, TileOperand b, float* c, int64_t c_stride,
                         int64_t columns, const TileEnd& end) {
  const int64_t step = kA == Layout::rows ? a.stride : 1;
  if (rows == kMr) return tile_columns<kMr, kA, kB>(k, a, b, c, c_stride, columns, end);
  for (; rows >= 4; rows -= 4, a.data += 4 * step, c += 4 * c_stride) {
    tile_columns<4, kA, kB>(k, a, b, c, c_stride, columns, end);
  }
  for (; rows >= 2; rows -= 2, a.data += 2 * step, c += 2 * c_stride) {
    tile_columns<2, kA, kB>(k, a, b, c, c_stride, columns, end);
  }
  if (rows) tile_columns<1, kA, kB>(k, a, b, c, c_stride, columns, end);
}

// Vectors of at most four lanes.
using QuadTag = hn::CappedTag<float, 4>;
inline constexpr int64_t kQuadLanes = hn::MaxLanes(QuadTag());

#if HWY_TARGET != HWY_SCALAR
// Four elements of each of W rows (4, 8 or 16), side by side: rows 0, 4, 8 and 12 of `from` in one vector.
template <int W, class T>
HWY_INLINE hn::Vec<hn::FixedTag<float, W>> load_quads(const T* from, int64_t stride) {
  const hn::FixedTag<float, W> d;
  if constexpr (W == 4) {
    return load_f32(d, from);
  } else {
    return hn::Combine(d, load_quads<W / 2>(from + W / 2 * stride, stride), load_quads<W / 2>(from, stride));
  }
}

// columns[i] = elements i of W rows, for i < 4: a transpose within each block of 4 x 4.
template <int W, class T>
HWY_INLINE void load_transposed(const T* from, int64_t stride, hn::Vec<hn::FixedTag<float, W>> columns[4]) {
  const hn::FixedTag<float, W> d;
  const hn::Repartition<double, decltype(d)> d64;
  const auto r0 = load_quads<W>(from, stride), r1 = load_quads<W>(from + stride, stride);
  const auto r2 = load_quads<W>(from + 2 * stride, stride), r3 = load_quads<W>(from + 3 * stride, stride);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  columns[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  columns[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  columns[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  columns[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}
#endif

// Turns `count` columns of W source rows into packed order: to[i * pitch + r] = from[r * stride + i].
template <int W, class T>
HWY_INLINE void pack_transposed_strip(const T* from, int64_t stride, int64_t count, float* to, int64_t pitch) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (W >= 4) {
    const hn::FixedTag<float, W> d;
    for (; i + 4 <= count; i += 4) {
      hn::Vec<decltype(d)> columns[4];
      load_transposed<W>(from + i, stride, columns);
      for (int j = 0; j < 4; ++j) hn::StoreU(columns[j], d, to + (i + j) * pitch);
    }
  }
#endif
  for (; i < count; ++i) {
    for (int r = 0; r < W; ++r) to[i * pitch + r] = static_cast<float>(from[r * stride + i]);
  }
}

// Packs a matrix whose k axis is contiguous: to[k * width + r] = from[r * stride + k] for r < rows <= width, and 0 for
// the other r.
template <class T>
HWY_INLINE void pack_along_k(const T* from, int64_t stride, int64_t rows, int64_t k, float* to, int64_t width) {
  int64_t r = 0;
  if constexpr (kLanes >= 16) {
    for (; r + 16 <= rows; r += 16) pack_transposed_strip<16>(from + r * stride, stride, k, to + r, width);
  }
  if constexpr (kLanes >= 8) {
    for (; r + 8 <= rows; r += 8) pack_transposed_strip<8>(from + r * stride, stride, k, to + r, width);
  }
  for (; r + 4 <= rows; r += 4) pack_transposed_strip<4>(from + r * stride, stride, k, to + r, width);
  for (; r + 2 <= rows; r += 2) pack_transposed_strip<2>(from + r * stride, stride, k, to + r, width);
  for (; r < rows; ++r) pack_transposed_strip<1>(from + r * stride, stride, k, to + r, width);
  for (; r < width; ++r) {
    for (int64_t i = 0; i < k; ++i) to[i * width + r] = 0;
  }
}

// Packs a matrix whose other axis is contiguous: to[k * width + r] = from[k * stride + r] for r < rows <= width, and 0
// for the other r.
template <class T>
HWY_INLINE void pack_across_k(const T* from, int64_t stride, int64_t rows, int64_t k, float* to, int64_t width) {
  const FloatTag d;
  for (int64_t i = 0; i < k; ++i, from += stride, to += width) {
    int64_t r = 0;
    for (; r + kLanes <= rows; r += kLanes) hn::StoreU(load_f32(d, from + r), d, to + r);
    for (; r + kQuadLanes <= rows; r += kQuadLanes) hn::StoreU(load_f32(QuadTag(), from + r), QuadTag(), to + r);
    for (; r < rows; ++r) to[r] = static_cast<float>(from[r]);
    for (; r < width; ++r) to[r] = 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#endif  // LOAM_KERNELS_CPU_GEMM_INL_H_
