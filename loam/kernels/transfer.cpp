#include "loam/kernels/transfer.h"

#include <cstring>

#include "loam/kernels/kernel_table.h"
#include "loam/tensor/device_memory.h"

namespace loam {

Tensor to_host(const ExecContext& ctx, const Tensor& tensor) {
  if (tensor.device().kind == DeviceKind::cpu) return tensor;
  Tensor flat = tensor;
  if (!tensor.is_contiguous()) {
    flat = ctx.empty(tensor.shape(), tensor.dtype());
    ctx.kernels->copy(ctx, {.in = tensor, .out = flat});
  }
  const auto memory = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(tensor.bytes()));
  Tensor host = Tensor::wrap(memory, memory->data(), tensor.shape(), tensor.dtype(), {});
  copy_values(flat, host);
  return host;
}

void copy_values(const Tensor& from, const Tensor& to) {
  LOAM_CHECK(from.shape() == to.shape() && from.dtype() == to.dtype() && from.is_contiguous() && to.is_contiguous(),
             "copy: {} {} into {} {}", dtype_name(from.dtype()), from.shape().str(), dtype_name(to.dtype()),
             to.shape().str());
  const DeviceKind kind = from.device().kind == DeviceKind::cuda ? DeviceKind::cuda : to.device().kind;
  if (from.bytes() > 0) device_memory(kind).copy(to.view().data, from.view().data, from.bytes());
}

}  // namespace loam
