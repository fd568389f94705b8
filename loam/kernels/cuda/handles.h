// What a context on a GPU owns besides memory: its stream, and cuBLASLt's handle with the algorithms chosen so far.
#pragma once

#include <memory>

#include "loam/kernels/exec_context.h"

namespace loam::cuda {

class MatmulCache;  // loam/kernels/cuda/matmul.h

class Handles : public DeviceHandles {
 public:
  explicit Handles(Device device);
  ~Handles() override;
  Stream stream() const;
  MatmulCache& matmul() { return *matmul_; }

  void synchronize() override;
  void upload(void* to, const void* from, int64_t bytes) override;
  std::unique_ptr<Download> download(const void* from, int64_t bytes) override;
  std::unique_ptr<Recording> record(const std::function<void()>& work) override;
  int64_t mark() override;
  double seconds_between(int64_t from, int64_t to) override;
  void clear_marks() override;

 private:
  struct Owned;
  std::unique_ptr<Owned> owned_;
  std::unique_ptr<MatmulCache> matmul_;
};

inline Handles& handles_of(const ExecContext& ctx) { return static_cast<Handles&>(*ctx.handles); }

// Makes `device` the thread's and fills in handles, stream and kernels.
void use(Device device, ExecResources& resources);

}  // namespace loam::cuda
