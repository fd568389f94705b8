#include "loam/kernels/cuda/handles.h"

#include "loam/kernels/cuda/matmul.h"
#include "loam/kernels/kernel_table.h"
#include "loam/tensor/cuda/cuda.h"

namespace loam::cuda {

struct Handles::Owned {
  StreamOwner stream;
};

Handles::Handles(Device device) {
  const DeviceScope scope(device);
  owned_ = std::make_unique<Owned>(Owned{make_stream()});
  matmul_ = std::make_unique<MatmulCache>();
}

Handles::~Handles() = default;

Stream Handles::stream() const { return {owned_->stream.get()}; }

void use(Device device, ExecResources& resources) {
  LOAM_CUDA(cudaSetDevice(device.index));
  const auto handles = std::make_shared<Handles>(device);
  resources.handles = handles;
  resources.context.handles = handles.get();
  resources.context.stream = handles->stream();
  resources.context.kernels = &cuda_kernel_table();
}

}  // namespace loam::cuda
