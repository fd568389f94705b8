// What CUDA kernels share: dispatch on dtype, wide loads and stores, reductions, launches.
//
// A kernel is written once for element type T (float, __nv_bfloat16 or __half) and pack width W: W elements move as one
// access of up to 16 bytes where pointers and strides allow it (pack_width), else one by one. Arithmetic is in f32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "loam/kernels/exec_context.h"
#include "loam/tensor/cuda/cuda.h"

namespace loam::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// The device's type for a host's.
template <class T>
struct DeviceType {
  using type = T;
};
template <>
struct DeviceType<Bf16> {
  using type = __nv_bfloat16;
};
template <>
struct DeviceType<F16> {
  using type = __half;
};
// Calls f(T{}) with the device's type for a float dtype.
template <class F>
void for_float(DType dtype, const char* kernel, F&& f) {
  visit_float(dtype, kernel, [&](auto type) { f(typename DeviceType<decltype(type)>::type{}); });
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

// W neighbours in registers, as f32.
template <int W>
struct Pack {
  float v[W];
};
template <class T, int W>
struct alignas(sizeof(T) * W) Raw {
  T v[W];
};
template <int W, class T>
__device__ inline Pack<W> load(const T* p) {
  const auto raw = *reinterpret_cast<const Raw<T, W>*>(p);
  Pack<W> pack;
#pragma unroll
  for (int i = 0; i < W; ++i) pack.v[i] = to_float(raw.v[i]);
  return pack;
}
template <int W, class T>
__device__ inline void store(T* p, const Pack<W>& pack) {
  Raw<T, W> raw;
#pragma unroll
  for (int i = 0; i < W; ++i) raw.v[i] = from_float<T>(pack.v[i]);
  *reinterpret_cast<Raw<T, W>*>(p) = raw;
}

// Elements of a float type that is known at run time: for calls that mix types, and where a view is small beside the
// others. One branch an access.
struct AnyFloat {
  void* data = nullptr;
  DType dtype = DType::f32;

  AnyFloat() = default;
  explicit AnyFloat(const View& v) : data(v.data), dtype(v.dtype) {}
  __device__ AnyFloat operator+(int64_t elements) const {
    AnyFloat moved = *this;
    moved.data = static_cast<char*>(data) + elements * (dtype == DType::f32 ? 4 : 2);
    return moved;
  }
};
template <int W>
__device__ inline Pack<W> load(AnyFloat p) {
  if (p.dtype == DType::f32) return load<W>(static_cast<const float*>(p.data));
  if (p.dtype == DType::bf16) return load<W>(static_cast<const __nv_bfloat16*>(p.data));
  return load<W>(static_cast<const __half*>(p.data));
}
template <int W>
__device__ inline void store(AnyFloat p, const Pack<W>& pack) {
  if (p.dtype == DType::f32) return store(static_cast<float*>(p.data), pack);
  if (p.dtype == DType::bf16) return store(static_cast<__nv_bfloat16*>(p.data), pack);
  store(static_cast<__half*>(p.data), pack);
}

// P: a pointer or AnyFloat.
template <int W, class P>
__device__ inline void store_or_add(P p, Pack<W> pack, bool add) {
  if (add) {
    const Pack<W> old = load<W>(p);
#pragma unroll
    for (int i = 0; i < W; ++i) pack.v[i] += old.v[i];
  }
  store(p, pack);
}

// The widest pack (8, 4 or 1 elements of at most 16 bytes) for rows of `cols` elements: every pointer and every stride
// between rows (in elements) must be a multiple of it. Absent pointers do not count.
struct Access16 {
  const void* data;
  int element;  // bytes
  int64_t stride;
};
inline int pack_width(int64_t cols, std::initializer_list<Access16> accesses) {
  for (const int width : {8, 4}) {
    bool fits = cols % width == 0;
    for (const Access16& a : accesses) {
      if (!a.data) continue;
      const int bytes = width * a.element < 16 ? width * a.element : 16;
      fits = fits && reinterpret_cast<uintptr_t>(a.data) % static_cast<uintptr_t>(bytes) == 0 && a.stride % width == 0;
    }
    if (fits) return width;
  }
  return 1;
}
// Calls f(std::integral_constant<int, W>{}).
template <class F>
void for_width(int width, F&& f) {
  if (width == 8) return f(std::integral_constant<int, 8>{});
  if (width == 4) return f(std::integral_constant<int, 4>{});
  f(std::integral_constant<int, 1>{});
}

// The sum of a warp's values, the same bits in every lane: a butterfly.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
// Of a block of whole warps, the same in every thread. `scratch` holds a float a warp; it may be used again after the
// next __syncthreads().
template <class Op>
__device__ inline float block_reduce(float x, float* scratch, float neutral, Op op) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x = op(x, __shfl_xor_sync(kAllLanes, x, step));
  if (warps == 1) return x;
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = lane < warps ? scratch[lane] : neutral;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x = op(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
__device__ inline float block_sum(float x, float* scratch) {
  return block_reduce(x, scratch, 0.0f, [](float a, float b) { return a + b; });
}
__device__ inline float block_max(float x, float* scratch) {
  return block_reduce(x, scratch, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks for `items` items of which a block takes `per_block` at a time: enough to fill the GPU, each looping over the
// rest. At least 1.
inline unsigned grid_for(int64_t items, int64_t per_block, int64_t most = 132 * 16) {
  const int64_t blocks = ceil_div(items, per_block);
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

// After <<<>>>: what the launch itself refused.
inline void launched(const char* kernel) { check(cudaPeekAtLastError(), kernel); }

}  // namespace loam::cuda
