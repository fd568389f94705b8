#include "loam/tensor/cuda/cuda.h"

namespace loam::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that is not sticky is answered for
  fail(status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kUnavailable, "cuda: {}: {} ({})",
       what, cudaGetErrorString(status), cudaGetErrorName(status));
}

DeviceScope::DeviceScope(Device device) {
  LOAM_CUDA(cudaGetDevice(&former_));
  LOAM_CUDA(cudaSetDevice(device.index));
}
DeviceScope::~DeviceScope() { cudaSetDevice(former_); }

StreamOwner make_stream() {
  cudaStream_t stream = nullptr;
  LOAM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return StreamOwner(stream);
}

Event make_event(bool timed) {
  cudaEvent_t event = nullptr;
  LOAM_CUDA(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  return Event(event);
}

}  // namespace loam::cuda
