// What every kernel call needs to know: where it runs, with which memory, threads and numerics. First argument
// everywhere; there are no globals.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "loam/base/parallel_for.h"
#include "loam/tensor/arena.h"
#include "loam/tensor/device.h"
#include "loam/tensor/tensor.h"

namespace loam {

class DeviceHandles;
class KernelProfile;
struct KernelTable;

// fast: the quickest variant. deterministic: the same bits on every run (no atomics, fixed reduction order). exact:
// also independent of the batch a row stands in (no split over K or over keys). The variant is a pure function of
// shape, device and level. On the CPU `fast` is deterministic at an equal number of threads.
enum class Numerics { fast, deterministic, exact };

// Every number that changes from step to step and that a kernel reads, in device memory, so that a captured step stays
// right when it is replayed.
struct StepState {
  float learning_rate = 0;   // of the schedule; groups scale it
  float gradient_scale = 1;  // clipping, and the inverse of a loss scale
  int64_t updates = 0;       // that the optimizer has made before this step: Adam's t - 1
  int64_t first_sample = 0;  // global sample of the batch's first row
  float loss_factor = 1;     // of the gradient of the loss: 1 / (targets of the step)
  int32_t skip = 0;          // not 0: the step is bad (non-finite gradients); the optimizer changes nothing
};

struct ExecContext {
  Device device;
  Stream stream;
  Arena* arena = nullptr;
  const KernelTable* kernels = nullptr;
  int threads = 1;
  Numerics numerics = Numerics::fast;
  uint64_t seed = 0;                 // Philox key of the run
  StepState* step = nullptr;         // null outside training; in the device's memory
  int64_t first_row = 0;             // of the batch, in the micro-batch at hand
  DeviceHandles* handles = nullptr;  // what the device's libraries keep; null on the CPU
  KernelProfile* profile = nullptr;  // not null: every kernel call is timed

  Tensor empty(const Shape& shape, DType dtype, MemoryKind kind = MemoryKind::activations) const {
    return Tensor::empty(*arena, shape, dtype, kind);
  }
};

// Work of a GPU that was recorded once and can be run again, on the same memory, in one go.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;  // returns before it is done
};

// A GPU's stream and the state of its libraries (loam/kernels/cuda/handles.h).
class DeviceHandles {
 public:
  virtual ~DeviceHandles() = default;
  // Waits for all work so far. Error{kUnavailable} if some of it failed.
  virtual void synchronize() = 0;
  // Host bytes into the device's memory, in order with its other work. Returns before they are there; the host's memory
  // may change at once.
  virtual void upload(void* to, const void* from, int64_t bytes) = 0;
  // What `work` launches, recorded and not run. It must neither wait for the device nor upload. REQUIRES: the memory
  // that it takes from the arena is nobody else's at a replay.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work) = 0;
};

// Owns what a context points to.
struct ExecResources {
  std::shared_ptr<DeviceHandles> handles;
  std::shared_ptr<Arena> arena;
  ExecContext context;
};
// A context on `device` with its own arena. Error{kUnavailable} if the device is not there or not built in.
ExecResources make_exec_resources(Device device, int threads = available_cores(), Numerics numerics = Numerics::fast);

}  // namespace loam
