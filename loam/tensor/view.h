// What a kernel sees of a tensor: a pointer, sizes and strides. Owns nothing.
#pragma once

#include <array>
#include <cstdint>

#include "loam/tensor/device.h"
#include "loam/tensor/dtype.h"
#include "loam/tensor/shape.h"

namespace loam {

struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  Shape shape;
  Dims strides;  // in elements

  explicit operator bool() const { return data != nullptr; }
  int rank() const { return shape.rank(); }
  int64_t numel() const { return shape.product(); }
  int64_t dim(int axis) const { return shape[axis]; }
  int64_t stride(int axis) const { return strides[axis]; }

  template <class T>
  T* ptr() const {
    LOAM_DCHECK(dtype == DTypeOf<T>::value, "view: has dtype {}", dtype_name(dtype));
    return static_cast<T*>(data);
  }
  // Binds the sizes to names: auto [B, T, C] = x.dims<3>(); Error if the rank differs.
  template <int N>
  std::array<int64_t, N> dims() const {
    LOAM_CHECK(rank() == N, "tensor: expected {} axes, got shape {}", N, shape.str());
    std::array<int64_t, N> d;
    for (int i = 0; i < N; ++i) d[static_cast<size_t>(i)] = shape[i];
    return d;
  }
  bool is_contiguous() const;
};

// A view as a matrix of rows: all axes but the last are folded into `rows`. Possible when those axes lie evenly spaced,
// which holds for a contiguous tensor and for a slice of its last axis. Error{kInvalidArgument} otherwise, or if the
// last axis has a stride other than 1.
struct Rows {
  int64_t rows = 0, cols = 0, stride = 0;  // stride between rows, in elements
};
Rows as_rows(const View& view, const char* what);

}  // namespace loam
