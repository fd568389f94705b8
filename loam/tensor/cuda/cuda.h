// The CUDA runtime with loam's errors, and owners of its handles. For the CUDA parts of layers.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "loam/base/error.h"
#include "loam/tensor/device_memory.h"

namespace loam::cuda {

// What loam/tensor/device_memory.h gives for GPUs.
extern const DeviceMemory kDeviceMemory;
int count();
void require(Device device);
DeviceProperties properties(Device device);

// Error that names the call and says what CUDA says: {kOutOfMemory} for its lack of memory, else {kUnavailable}.
void check(cudaError_t status, const char* what);

// Makes a device the thread's current one, and the former one again at the end.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int former_ = 0;
};

// An owner of a handle that `destroy` gives back.
template <class Handle, cudaError_t (*destroy)(Handle)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owner() {
    if (handle_) destroy(handle_);
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

using StreamOwner = Owner<cudaStream_t, cudaStreamDestroy>;
using Event = Owner<cudaEvent_t, cudaEventDestroy>;
using Graph = Owner<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owner<cudaGraphExec_t, cudaGraphExecDestroy>;

StreamOwner make_stream();             // that does not wait for the default stream
Event make_event(bool timed = false);  // of the current device

inline cudaStream_t stream_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace loam::cuda

#define LOAM_CUDA(call) ::loam::cuda::check((call), #call)
