// How a block holds a tile of kM x kN scores and kM x kD sums in registers, and multiplies them: by the tensor cores
// for types of 16 bits, by multiply-adds in full precision for f32. A thread holds kR rows of each, kC columns of the
// scores and kDc of the sums, at row(i) and col(j).
#pragma once

#include "loam/kernels/cuda/attention.cuh"

namespace loam::cuda {

// Exchanges the numbers of four lanes that differ in bits 2 and 3 of the lane: w[e] of the m-th becomes w[m] of the
// e-th.
__device__ inline void transpose_lanes(uint32_t (&w)[4]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int bit = 1; bit <= 2; ++bit) {
    const bool high = lane & (2 * bit == 4 ? 8 : 4);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      uint32_t &a = w[bit == 1 ? 2 * pair : pair], &b = w[bit == 1 ? 2 * pair + 1 : pair + 2];
      const uint32_t other = __shfl_xor_sync(kAllLanes, high ? a : b, bit * 4);
      if (high) {
        a = other;
      } else {
        b = other;
      }
    }
  }
}

// kWarps warps, each with 16 kMt rows and all columns.
template <class T, int kWarps, int kMt, int kCols, int kWidth, int kBlocks>
struct MmaLayout {
  using Element = T;
  static constexpr int kThreads = kWarps * kWarp, kMinBlocks = kBlocks;
  static constexpr int kM = 16 * kMt * kWarps, kN = kCols, kD = kWidth;
  static constexpr int kR = 2 * kMt, kC = kN / 4, kDc = kD / 4;
  static constexpr int kScratch = 0;  // floats of shared memory

  static __device__ int lane() { return threadIdx.x % kWarp; }
  static __device__ int warp_row() { return threadIdx.x / kWarp * (16 * kMt); }
  static __device__ int row(int i) { return warp_row() + i / 2 * 16 + i % 2 * 8 + lane() / 4; }
  static __device__ int col(int j) { return j / 2 * 8 + lane() % 4 * 2 + j % 2; }
  // One of the threads that share a row.
  static __device__ bool first_in_row() { return lane() % 4 == 0; }
  template <class Op>
  static __device__ float over_row(float x, Op op) {
    x = op(x, __shfl_xor_sync(kAllLanes, x, 1));
    return op(x, __shfl_xor_sync(kAllLanes, x, 2));
  }

  static __device__ void scores(float (&s)[kR][kC], const Element* a, const Element* b) {
    warp_product_abt<T, kMt, kN, kD>(s, shared_address(a + warp_row() * kD), shared_address(b));
  }
  static __device__ void add(float (&sums)[kR][kDc], const float (&p)[kR][kC], const Element* b, float*) {
    warp_product_ab<T, kMt, kN, kD>(sums, p, shared_address(b));
  }

  // Sets bit j of dropped[i] if the weight of query `draw(row(i))` on key first + col(j) is dropped. Four keys share a
  // block of random numbers and lie in two lanes, which hold two rows: each lane makes the block of one.
  template <class Draw>
  static __device__ void dropped_by_row(uint32_t (&dropped)[kR], PhiloxStream stream, uint32_t bound, int first,
                                        Draw draw) {
    const bool odd = lane() & 1;
#pragma unroll
    for (int m = 0; m < kMt; ++m) {
      const uint64_t base =
          (uint64_t{draw(row(2 * m) + (odd ? 8 : 0))} << 24) + static_cast<uint64_t>((first + lane() % 4 * 2) / 4);
      dropped[2 * m] = dropped[2 * m + 1] = 0;
#pragma unroll
      for (int n = 0; n < kN / 8; ++n) {
        const auto w = stream.block(base + 2 * static_cast<uint64_t>(n));
        const uint32_t other0 = __shfl_xor_sync(kAllLanes, odd ? w[0] : w[2], 1);
        const uint32_t other1 = __shfl_xor_sync(kAllLanes, odd ? w[1] : w[3], 1);
        const uint32_t up = ((odd ? other0 : w[0]) < bound) | ((odd ? other1 : w[1]) < bound) << 1;
        const uint32_t down = ((odd ? w[2] : other0) < bound) | ((odd ? w[3] : other1) < bound) << 1;
        dropped[2 * m] |= up << 2 * n;
        dropped[2 * m + 1] |= down << 2 * n;
      }
    }
  }
  // The same for key first + row(i) and query `draw(col(j))`. Here the four keys lie in four lanes, each of which holds
  // four pairs of a key and a query.
  template <class Draw>
  static __device__ void dropped_by_col(uint32_t (&dropped)[kR], PhiloxStream stream, uint32_t bound, int first,
                                        Draw draw) {
    const int mine = lane() / 4 % 4;
#pragma unroll
    for (int m = 0; m < kMt; ++m) {
      const uint64_t keys = static_cast<uint64_t>((first + row(2 * m) + mine / 2 * 8) / 4);
      dropped[2 * m] = dropped[2 * m + 1] = 0;
#pragma unroll
      for (int n = 0; n < kN / 8; ++n) {
        const auto block = stream.block((uint64_t{draw(col(2 * n) + mine % 2)} << 24) + keys);
        uint32_t w[4] = {block[0], block[1], block[2], block[3]};
        transpose_lanes(w);
        dropped[2 * m] |= ((w[0] < bound) | (w[1] < bound) << 1) << 2 * n;
        dropped[2 * m + 1] |= ((w[2] < bound) | (w[3] < bound) << 1) << 2 * n;
      }
    }
  }
};

// 16 x 16 threads, each with every 16th row and column. Weights go through shared memory.
template <int kRows, int kCols, int kWidth>
struct FmaLayout {
  using Element = float;
  static constexpr int kThreads = 256, kMinBlocks = 1;
  static constexpr int kM = kRows, kN = kCols, kD = kWidth;
  static constexpr int kR = kM / 16, kC = kN / 16, kDc = kD / 16;
  static constexpr int kPitch = kN + 1, kScratch = kM * kPitch;

  static __device__ int row(int i) { return threadIdx.x / 16 + 16 * i; }
  static __device__ int col(int j) { return threadIdx.x % 16 + 16 * j; }
  static __device__ bool first_in_row() { return threadIdx.x % 16 == 0; }
  template <class Op>
  static __device__ float over_row(float x, Op op) {
#pragma unroll
    for (int step = 1; step < 16; step *= 2) x = op(x, __shfl_xor_sync(kAllLanes, x, step));
    return x;
  }

  static __device__ void scores(float (&s)[kR][kC], const float* a, const float* b) {
    clear(s);
#pragma unroll 2
    for (int d = 0; d < kD; d += 4) {
      float4 left[kR], right[kC];
#pragma unroll
      for (int i = 0; i < kR; ++i) left[i] = *reinterpret_cast<const float4*>(tile_at<kD>(a, row(i), d));
#pragma unroll
      for (int j = 0; j < kC; ++j) right[j] = *reinterpret_cast<const float4*>(tile_at<kD>(b, col(j), d));
#pragma unroll
      for (int i = 0; i < kR; ++i) {
#pragma unroll
        for (int j = 0; j < kC; ++j) {
          s[i][j] = fmaf(left[i].x, right[j].x, s[i][j]);
          s[i][j] = fmaf(left[i].y, right[j].y, s[i][j]);
          s[i][j] = fmaf(left[i].z, right[j].z, s[i][j]);
          s[i][j] = fmaf(left[i].w, right[j].w, s[i][j]);
        }
      }
    }
  }
  // A row of weights is written and read by the same half of a warp.
  static __device__ void add(float (&sums)[kR][kDc], const float (&p)[kR][kC], const float* b, float* scratch) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kR; ++i) {
#pragma unroll
      for (int j = 0; j < kC; ++j) scratch[row(i) * kPitch + col(j)] = p[i][j];
    }
    __syncwarp();
#pragma unroll 2
    for (int k = 0; k < kN; ++k) {
      float left[kR];
#pragma unroll
      for (int i = 0; i < kR; ++i) left[i] = scratch[row(i) * kPitch + k];
#pragma unroll
      for (int j = 0; j < kDc; ++j) {
        const float right = *tile_at<kD>(b, k, col(j));
#pragma unroll
        for (int i = 0; i < kR; ++i) sums[i][j] = fmaf(left[i], right, sums[i][j]);
      }
    }
  }

  static __device__ bool is_dropped(PhiloxStream stream, uint32_t bound, uint32_t query, int key) {
    return stream.block((uint64_t{query} << 24) + static_cast<uint64_t>(key / 4))[static_cast<size_t>(key % 4)] < bound;
  }
  template <class Draw>
  static __device__ void dropped_by_row(uint32_t (&dropped)[kR], PhiloxStream stream, uint32_t bound, int first,
                                        Draw draw) {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      dropped[i] = 0;
#pragma unroll
      for (int j = 0; j < kC; ++j) {
        dropped[i] |= uint32_t{is_dropped(stream, bound, draw(row(i)), first + col(j))} << j;
      }
    }
  }
  template <class Draw>
  static __device__ void dropped_by_col(uint32_t (&dropped)[kR], PhiloxStream stream, uint32_t bound, int first,
                                        Draw draw) {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      dropped[i] = 0;
#pragma unroll
      for (int j = 0; j < kC; ++j) {
        dropped[i] |= uint32_t{is_dropped(stream, bound, draw(col(j)), first + row(i))} << j;
      }
    }
  }
};

}  // namespace loam::cuda
