// An n-dimensional array: a counted handle on a storage, with sizes and strides. Carries no mathematics and no
// gradient.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "loam/tensor/arena.h"
#include "loam/tensor/storage.h"
#include "loam/tensor/view.h"

namespace loam {

class Tensor {
 public:
  Tensor() = default;

  // Uninitialised, row-major.
  static Tensor empty(Arena& arena, const Shape& shape, DType dtype, MemoryKind kind = MemoryKind::activations);
  static Tensor zeros(Arena& arena, const Shape& shape, DType dtype,
                      MemoryKind kind = MemoryKind::activations);  // CPU arenas only
  // A copy of host values; the product of the shape must be their number.
  template <class T>
  static Tensor from(Arena& arena, const Shape& shape, std::span<const T> values,
                     MemoryKind kind = MemoryKind::activations) {
    Tensor t = empty(arena, shape, DTypeOf<T>::value, kind);
    LOAM_CHECK(static_cast<int64_t>(values.size()) == t.numel(), "tensor: {} values for shape {}", values.size(),
               shape.str());
    t.set_bytes(values.data());
    return t;
  }
  // Memory that `owner` keeps alive, for example a mapped file. Read only.
  static Tensor wrap(std::shared_ptr<void> owner, void* data, const Shape& shape, DType dtype, Device device);

  explicit operator bool() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Dims& strides() const { return strides_; }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  int rank() const { return shape_.rank(); }
  int64_t dim(int axis) const { return shape_[axis]; }
  int64_t numel() const { return shape_.product(); }
  int64_t bytes() const { return numel() * dtype_size(dtype_); }
  bool is_contiguous() const { return view().is_contiguous(); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  View view() const;
  operator View() const { return view(); }
  template <int N>
  std::array<int64_t, N> dims() const {
    return view().dims<N>();
  }
  // The elements of a contiguous CPU tensor.
  template <class T>
  T* data() const {
    return view().ptr<T>();
  }
  template <class T>
  std::span<T> span() const {
    LOAM_CHECK(is_contiguous(), "tensor: shape {} is not contiguous", shape_.str());
    return {data<T>(), static_cast<size_t>(numel())};
  }

  // Between the host's memory and a GPU's; both tensors contiguous. Complete when they return.
  Tensor to_host() const;                  // the tensor itself on the CPU
  void copy_from(const Tensor& other);     // of equal shape and dtype
  void set_bytes(const void* host_bytes);  // bytes() of them

  // These share the storage.
  Tensor reshape(const Shape& shape) const;                      // Error unless contiguous and of equal size
  Tensor narrow(int axis, int64_t begin, int64_t length) const;  // [begin, begin + length) of an axis
  Tensor transpose(int axis_a, int axis_b) const;
  Tensor as_strided(const Shape& shape, const Dims& strides,
                    int64_t offset) const;  // offset from this tensor's first element

 private:
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // in elements
  Shape shape_;
  Dims strides_;
  DType dtype_ = DType::f32;
};

}  // namespace loam
