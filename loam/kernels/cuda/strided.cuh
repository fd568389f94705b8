// Element-by-element kernels over views of one shape and any strides: axes that lie evenly in all views are joined, so
// contiguous tensors are one row; what is left is walked by index arithmetic.
#pragma once

#include <array>

#include "loam/kernels/cuda/launch.cuh"
#include "loam/tensor/view.h"

namespace loam::cuda {

// K views of one shape. Axes of size 1 are dropped and neighbours joined; sizes from the last axis on.
template <int K>
struct Strided {
  int axes = 0;
  int64_t numel = 1;
  int64_t size[kMaxRank];
  int64_t stride[kMaxRank][K];  // in elements
  void* data[K];
  int64_t bytes[K];  // of an element

  explicit Strided(const std::array<View, K>& views) {
    const Shape& shape = views[0].shape;
    for (int k = 0; k < K; ++k) {
      data[k] = views[static_cast<size_t>(k)].data;
      bytes[k] = dtype_size(views[static_cast<size_t>(k)].dtype);
    }
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      numel *= shape[axis];
      if (shape[axis] == 1) continue;
      bool joins = axes > 0;
      for (int k = 0; k < K && joins; ++k) {
        joins = views[static_cast<size_t>(k)].stride(axis) == size[axes - 1] * stride[axes - 1][k];
      }
      if (joins) {
        size[axes - 1] *= shape[axis];
      } else {
        size[axes] = shape[axis];
        for (int k = 0; k < K; ++k) stride[axes][k] = views[static_cast<size_t>(k)].stride(axis);
        ++axes;
      }
    }
    if (axes == 0) {  // a scalar
      size[0] = 1;
      for (int k = 0; k < K; ++k) stride[0][k] = 1;
      axes = 1;
    }
  }

  // The elements that can be moved together.
  int width() const {
    for (const int w : {8, 4}) {
      bool fits = size[0] % w == 0;
      for (int k = 0; k < K && fits; ++k) {
        const int64_t wide = std::min<int64_t>(16, w * bytes[k]);
        fits = stride[0][k] == 1 && reinterpret_cast<uintptr_t>(data[k]) % static_cast<uintptr_t>(wide) == 0;
        for (int axis = 1; axis < axes; ++axis) fits = fits && stride[axis][k] % w == 0;
      }
      if (fits) return w;
    }
    return 1;
  }

  // Offsets of element `index` in each view.
  __device__ std::array<int64_t, K> at(int64_t index) const {
    std::array<int64_t, K> offset{};
    if (axes == 1) {
      for (int k = 0; k < K; ++k) offset[k] = index * stride[0][k];
      return offset;
    }
    for (int axis = 0; axis < axes; ++axis) {
      const int64_t i = axis + 1 < axes ? index % size[axis] : index;
      index /= size[axis];
      for (int k = 0; k < K; ++k) offset[k] += i * stride[axis][k];
    }
    return offset;
  }
};

inline constexpr int kStridedThreads = 256;

// f(offsets) for every group of W elements. F is a functor whose operator() is a __device__ function.
template <int W, int K, class F>
__global__ void strided_kernel(Strided<K> views, F f) {
  const int64_t groups = views.numel / W, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < groups; i += step) f(views.at(i * W));
}

template <int W, int K, class F>
void for_each_group(const ExecContext& ctx, const Strided<K>& views, const char* kernel, F f) {
  if (views.numel == 0) return;
  const unsigned blocks = grid_for(views.numel / W, kStridedThreads);
  strided_kernel<W, K><<<blocks, kStridedThreads, 0, stream_of(ctx.stream)>>>(views, f);
  launched(kernel);
}

}  // namespace loam::cuda
