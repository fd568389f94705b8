#include "loam/tensor/tensor.h"

#include <cstring>
#include <utility>

#include "loam/tensor/device_memory.h"

namespace loam {
namespace {

// Bytes of a row-major tensor, with sizes and overflow checked: a shape may come from a file.
int64_t checked_bytes(const Shape& shape, DType dtype) {
  int64_t bytes = dtype_size(dtype);
  bool empty = false;
  for (int64_t size : shape) {
    LOAM_CHECK(size >= 0, "tensor: negative size in shape {}", shape.str());
    empty |= size == 0;
    LOAM_CHECK(empty || !__builtin_mul_overflow(bytes, size, &bytes), "tensor: shape {} is too large", shape.str());
  }
  return empty ? 0 : bytes;
}

int checked_axis(const Shape& shape, int axis) {
  const int positive = axis < 0 ? axis + shape.rank() : axis;
  LOAM_CHECK(positive >= 0 && positive < shape.rank(), "tensor: shape {} has no axis {}", shape.str(), axis);
  return positive;
}

}  // namespace

Tensor Tensor::empty(Arena& arena, const Shape& shape, DType dtype, MemoryKind kind) {
  Tensor t;
  t.storage_ = std::make_shared<Storage>(arena.shared_from_this(), checked_bytes(shape, dtype), kind);
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  return t;
}

Tensor Tensor::zeros(Arena& arena, const Shape& shape, DType dtype, MemoryKind kind) {
  LOAM_CHECK(arena.device().kind == DeviceKind::cpu, "tensor: zeros needs a CPU arena, not {}",
             device_name(arena.device()));
  Tensor t = empty(arena, shape, dtype, kind);
  std::memset(t.storage_->data(), 0, static_cast<size_t>(t.storage_->bytes()));
  return t;
}

Tensor Tensor::wrap(std::shared_ptr<void> owner, void* data, const Shape& shape, DType dtype, Device device) {
  Tensor t;
  t.storage_ = std::make_shared<Storage>(std::move(owner), data, checked_bytes(shape, dtype), device);
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  return t;
}

View Tensor::view() const {
  if (!storage_) return {};
  return {static_cast<std::byte*>(storage_->data()) + offset_ * dtype_size(dtype_), dtype_, storage_->device(), shape_,
          strides_};
}

Tensor Tensor::to_host() const {
  if (device().kind == DeviceKind::cpu) return *this;
  const auto memory = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes()));
  Tensor host = wrap(memory, memory->data(), shape_, dtype_, {});
  host.copy_from(*this);
  return host;
}

void Tensor::copy_from(const Tensor& other) {
  LOAM_CHECK(shape_ == other.shape_ && dtype_ == other.dtype_ && is_contiguous() && other.is_contiguous(),
             "tensor: {} {} does not take the values of {} {}", dtype_name(dtype_), shape_.str(),
             dtype_name(other.dtype_), other.shape_.str());
  const Device from = other.device();
  const DeviceMemory& memory = device_memory(from.kind == DeviceKind::cpu ? device().kind : from.kind);
  if (bytes() > 0) memory.copy(view().data, other.view().data, bytes());
}

void Tensor::set_bytes(const void* host_bytes) {
  LOAM_CHECK(is_contiguous(), "tensor: shape {} is not contiguous", shape_.str());
  if (bytes() > 0) device_memory(device().kind).copy(view().data, host_bytes, bytes());
}

Tensor Tensor::reshape(const Shape& shape) const {
  LOAM_CHECK(is_contiguous(), "tensor: cannot reshape {} with strides {}: it is not contiguous", shape_.str(),
             strides_.str());
  LOAM_CHECK(checked_bytes(shape, dtype_) == bytes(), "tensor: cannot reshape {} into {}", shape_.str(), shape.str());
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  return t;
}

Tensor Tensor::narrow(int axis, int64_t begin, int64_t length) const {
  axis = checked_axis(shape_, axis);
  LOAM_CHECK(begin >= 0 && length >= 0 && begin <= shape_[axis] && length <= shape_[axis] - begin,
             "tensor: range [{}, {}) is outside axis {} of shape {}", begin, begin + length, axis, shape_.str());
  Tensor t = *this;
  t.shape_[axis] = length;
  t.offset_ += begin * strides_[axis];
  return t;
}

Tensor Tensor::transpose(int axis_a, int axis_b) const {
  axis_a = checked_axis(shape_, axis_a);
  axis_b = checked_axis(shape_, axis_b);
  Tensor t = *this;
  std::swap(t.shape_[axis_a], t.shape_[axis_b]);
  std::swap(t.strides_[axis_a], t.strides_[axis_b]);
  return t;
}

Tensor Tensor::as_strided(const Shape& shape, const Dims& strides, int64_t offset) const {
  LOAM_CHECK(storage_ != nullptr && shape.rank() == strides.rank(), "tensor: shape {} with {} strides", shape.str(),
             strides.rank());
  checked_bytes(shape, dtype_);
  const int64_t elements = storage_->bytes() / dtype_size(dtype_);
  int64_t begin = offset_ + offset, last = begin;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    LOAM_CHECK(strides[axis] >= 0, "tensor: negative stride in {}", strides.str());
    last += (shape[axis] - 1) * strides[axis];
  }
  LOAM_CHECK(begin >= 0 && (shape.product() == 0 ? begin <= elements : last < elements),
             "tensor: shape {} with strides {} at {} leaves a storage of {} elements", shape.str(), strides.str(),
             begin, elements);
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = strides;
  t.offset_ = begin;
  return t;
}

}  // namespace loam
