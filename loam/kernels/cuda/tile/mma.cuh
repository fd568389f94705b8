// Tiles in shared memory and the tensor cores: what a kernel of matrix products is made of (sm_80 and later).
//
// A tile is rows of kRowBytes (a multiple of 128) cut into chunks of 16 bytes. Chunk c of row r lies at place
// c ^ (r & 7) of its row, so that the same chunk of eight neighbouring rows, which is what ldmatrix reads at a time,
// lies in all 32 banks. A tile starts at a multiple of kRowBytes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace loam::cuda {

inline constexpr int kChunk = 16;  // bytes

template <int kRowBytes>
__device__ constexpr int swizzled(int row, int chunk) {
  static_assert(kRowBytes % 128 == 0);
  return row * kRowBytes + ((chunk ^ (row & 7)) * kChunk);
}
// Element (row, col) of a tile of T whose rows have kCols elements.
template <int kCols, class T>
__device__ T* tile_at(T* tile, int row, int col) {
  constexpr int kPer = kChunk / static_cast<int>(sizeof(T));
  return tile + swizzled<kCols* static_cast<int>(sizeof(T))>(row, col / kPer) / static_cast<int>(sizeof(T)) +
         col % kPer;
}

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// 16 bytes from global to shared memory without passing through registers; zeros unless `inside`.
__device__ inline void copy_chunk_async(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;\n" ::: "memory"); }

// Four 8 x 8 matrices of 16-bit numbers; lanes 8i to 8i + 7 give the addresses of the rows of matrix i. Lane l gets of
// each matrix the numbers (l/4, 2 (l%4)) and the next one; transposed, (2 (l%4), l/4) and the one below.
__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// c += a b, 16 x 8 += (16 x 16)(16 x 8) of T, __nv_bfloat16 or __half, by a warp. Lane l holds of c: c0, c1 at
// (l/4, 2 (l%4)), c2, c3 eight rows below.
template <class T>
__device__ inline void mma(float& c0, float& c1, float& c2, float& c3, const uint32_t (&a)[4], uint32_t b0,
                           uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};\n"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, __half>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};\n"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <class T>
__device__ inline uint32_t pack_pair(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// What a warp holds of a matrix of 16 kMt x kN sums: c[i][j] is at row 16 (i/2) + 8 (i%2) + l/4 and column 8 (j/2) +
// 2 (l%4) + j%2.
template <int kMt, int kN>
using MmaSums = float[2 * kMt][kN / 4];

// c = a b^T for 16 kMt rows of `a` and kN rows of `b`, tiles with rows of kD elements of T.
template <class T, int kMt, int kN, int kD>
__device__ inline void warp_product_abt(MmaSums<kMt, kN>& c, uint32_t a, uint32_t b) {
  constexpr int kRow = kD * 2;
  const int lane = threadIdx.x % 32;
  a += swizzled<kRow>(lane & 15, lane >> 4);
  b += swizzled<kRow>((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1);
#pragma unroll
  for (int i = 0; i < 2 * kMt; ++i) {
#pragma unroll
    for (int j = 0; j < kN / 4; ++j) c[i][j] = 0;
  }
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    uint32_t left[kMt][4];
#pragma unroll
    for (int m = 0; m < kMt; ++m) load_matrices(left[m], (a ^ (k * 32)) + m * 16 * kRow);
#pragma unroll
    for (int n = 0; n < kN / 16; ++n) {
      uint32_t right[4];
      load_matrices(right, (b ^ (k * 32)) + n * 16 * kRow);
#pragma unroll
      for (int m = 0; m < kMt; ++m) {
        float(&up)[kN / 4] = c[2 * m], (&down)[kN / 4] = c[2 * m + 1];
        mma<T>(up[4 * n], up[4 * n + 1], down[4 * n], down[4 * n + 1], left[m], right[0], right[1]);
        mma<T>(up[4 * n + 2], up[4 * n + 3], down[4 * n + 2], down[4 * n + 3], left[m], right[2], right[3]);
      }
    }
  }
}

// c += a b, `a` rounded to T, for 16 kMt rows of `a`, in registers as the sums of an earlier product, and kN rows of
// the tile `b`.
template <class T, int kMt, int kN, int kD>
__device__ inline void warp_product_ab(MmaSums<kMt, kD>& c, const MmaSums<kMt, kN>& a, uint32_t b) {
  constexpr int kRow = kD * 2;
  const int lane = threadIdx.x % 32;
  b += swizzled<kRow>(lane & 15, lane >> 4);
#pragma unroll
  for (int k = 0; k < kN / 16; ++k) {
    uint32_t left[kMt][4];
#pragma unroll
    for (int m = 0; m < kMt; ++m) {
      const float(&up)[kN / 4] = a[2 * m], (&down)[kN / 4] = a[2 * m + 1];
      left[m][0] = pack_pair<T>(up[4 * k], up[4 * k + 1]);
      left[m][1] = pack_pair<T>(down[4 * k], down[4 * k + 1]);
      left[m][2] = pack_pair<T>(up[4 * k + 2], up[4 * k + 3]);
      left[m][3] = pack_pair<T>(down[4 * k + 2], down[4 * k + 3]);
    }
#pragma unroll
    for (int n = 0; n < kD / 16; ++n) {
      uint32_t right[4];
      load_matrices_transposed(right, (b ^ (n * 32)) + k * 16 * kRow);
#pragma unroll
      for (int m = 0; m < kMt; ++m) {
        float(&up)[kD / 4] = c[2 * m], (&down)[kD / 4] = c[2 * m + 1];
        mma<T>(up[4 * n], up[4 * n + 1], down[4 * n], down[4 * n + 1], left[m], right[0], right[1]);
        mma<T>(up[4 * n + 2], up[4 * n + 3], down[4 * n + 2], down[4 * n + 3], left[m], right[2], right[3]);
      }
    }
  }
}

}  // namespace loam::cuda
