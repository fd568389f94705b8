#include "loam/kernels/exec_context.h"

#include <utility>

#include "loam/kernels/kernel_table.h"

namespace loam {

ExecResources make_exec_resources(Device device, int threads, Numerics numerics) {
  LOAM_CHECK(threads >= 1, "exec_context: threads is {}, must be at least 1", threads);
  if (device.kind != DeviceKind::cpu) {
    fail(ErrorCode::kUnavailable, "exec_context: this build has no kernels for {}", device_name(device));
  }
  ExecResources resources;
  resources.arena = Arena::create(device);
  resources.context.device = device;
  resources.context.arena = resources.arena.get();
  resources.context.kernels = &cpu_kernel_table();
  resources.context.threads = threads;
  resources.context.numerics = numerics;
  return resources;
}

}  // namespace loam
