#include "loam/tensor/cuda/cuda.h"

namespace loam::cuda {
namespace {

void* map(Device device, int64_t bytes, bool) {
  const DeviceScope scope(device);
  void* begin = nullptr;
  const cudaError_t status = cudaMalloc(&begin, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaMalloc");
  return begin;
}

// Errors of the work before it belong to whoever waits for that; at the end of the program the driver may be gone.
void unmap(Device, void* begin, int64_t) { cudaFree(begin); }

void fill(void* to, uint8_t byte, int64_t bytes) {
  LOAM_CUDA(cudaMemset(to, byte, static_cast<size_t>(bytes)));
  LOAM_CUDA(cudaDeviceSynchronize());
}

// cudaMemcpy from pageable memory returns before the bytes are there, and other streams don't wait for it.
void copy(void* to, const void* from, int64_t bytes) {
  LOAM_CUDA(cudaDeviceSynchronize());
  LOAM_CUDA(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault));
  LOAM_CUDA(cudaDeviceSynchronize());
}

}  // namespace

const DeviceMemory kDeviceMemory{map, unmap, fill, copy};

int count() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices;
  cudaGetLastError();
  return 0;
}

// Compute capability 8.0 is the oldest that the kernels are written for.
void require(Device device) {
  int devices = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  cudaGetLastError();
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  if (driver == 0) fail(ErrorCode::kUnavailable, "device: {}: there is no NVIDIA driver", device_name(device));
  if (status == cudaErrorInsufficientDriver) {
    fail(ErrorCode::kUnavailable, "device: {}: the driver knows CUDA up to {}, this build needs {}",
         device_name(device), version(driver), version(runtime));
  }
  if (status != cudaSuccess && status != cudaErrorNoDevice) check(status, "cudaGetDeviceCount");
  if (device.index >= devices) {
    fail(ErrorCode::kUnavailable, "device: {}: there {}", device_name(device),
         devices == 0   ? "is no GPU"
         : devices == 1 ? "is one GPU, cuda:0"
                        : fmt::format("are {} GPUs, cuda:0 to cuda:{}", devices, devices - 1));
  }
  const DeviceProperties found = properties(device);
  if (found.major < 8) {
    fail(ErrorCode::kUnavailable, "device: {} is a {} of compute capability {}.{}; 8.0 is the least that is supported",
         device_name(device), found.name, found.major, found.minor);
  }
}

DeviceProperties properties(Device device) {
  const DeviceScope scope(device);
  cudaDeviceProp properties;
  LOAM_CUDA(cudaGetDeviceProperties(&properties, device.index));
  size_t free = 0, total = 0;
  LOAM_CUDA(cudaMemGetInfo(&free, &total));
  return {properties.name,
          static_cast<int64_t>(total),
          static_cast<int64_t>(free),
          properties.multiProcessorCount,
          properties.major,
          properties.minor};
}

}  // namespace loam::cuda
