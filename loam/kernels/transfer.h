// Values on their way between the host's memory and a context's device. On the CPU nothing moves.
#pragma once

#include <span>

#include "loam/kernels/exec_context.h"

namespace loam {

// The tensor's values in the host's memory, contiguous if they come from a GPU: complete when this returns, and not
// written to by what follows. On the CPU the tensor itself.
Tensor to_host(const ExecContext& ctx, const Tensor& tensor);

// Copies between tensors of equal shape and dtype, contiguous, on either side; complete when it returns.
void copy_values(const Tensor& from, const Tensor& to);

// Host values in a new tensor of the context's device.
template <class T>
Tensor to_device(const ExecContext& ctx, const Shape& shape, std::span<const T> values,
                 MemoryKind kind = MemoryKind::activations) {
  if (ctx.device.kind == DeviceKind::cpu) return Tensor::from(*ctx.arena, shape, values, kind);
  LOAM_CHECK(shape.product() == static_cast<int64_t>(values.size()), "tensor: {} values for shape {}", values.size(),
             shape.str());
  const Tensor tensor = ctx.empty(shape, DTypeOf<T>::value, kind);
  copy_values(Tensor::wrap(nullptr, const_cast<T*>(values.data()), shape, DTypeOf<T>::value, {}), tensor);
  return tensor;
}

}  // namespace loam
