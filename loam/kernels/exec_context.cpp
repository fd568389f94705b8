#include "loam/kernels/exec_context.h"

#include <utility>

#include "loam/kernels/kernel_table.h"
#include "loam/tensor/device_memory.h"
#ifdef LOAM_HAS_CUDA
#include "loam/kernels/cuda/handles.h"
#endif

namespace loam {

ExecResources make_exec_resources(Device device, int threads, Numerics numerics) {
  LOAM_CHECK(threads >= 1, "exec_context: threads is {}, must be at least 1", threads);
  require_device(device);
  ExecResources resources;
  resources.context.device = device;
  resources.context.kernels = &cpu_kernel_table();
  Arena::Options memory;
#ifdef LOAM_HAS_CUDA
  if (device.kind == DeviceKind::cuda) {
    cuda::use(device, resources);
    memory.segment_bytes = int64_t{256} << 20;
  }
#endif
  resources.arena = Arena::create(device, memory);
  resources.context.arena = resources.arena.get();
  resources.context.threads = threads;
  resources.context.numerics = numerics;
  return resources;
}

}  // namespace loam
