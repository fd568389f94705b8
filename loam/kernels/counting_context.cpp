#include "loam/kernels/counting_context.h"

#include "loam/kernels/kernel_table.h"
#include "loam/tensor/device_memory.h"

namespace loam {

ExecResources make_counting_resources(Device device, int threads) {
  device_memory(device.kind);  // is it built in?
  ExecResources resources;
  resources.context.device = device;
  resources.context.kernels = &cpu_kernel_table();
#ifdef LOAM_HAS_CUDA
  if (device.kind == DeviceKind::cuda) resources.context.kernels = &cuda_kernel_table();
#endif
  Arena::Options memory;
  memory.sparse = true;
  resources.arena = Arena::create(device, memory);
  resources.context.arena = resources.arena.get();
  resources.context.threads = threads;
  return resources;
}

}  // namespace loam
