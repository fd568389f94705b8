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
// shape, device, level and the alignment of rows. On the CPU `fast` is deterministic at an equal number of threads.
enum class Numerics { fast, deterministic, exact };

// What the host says of a step.
struct StepInputs {
  float learning_rate = 0;   // of the schedule; groups scale it
  float loss_factor = 1;     // of the gradient of the loss: 1 / (targets of the step)
  int64_t first_sample = 0;  // global sample of the batch's first row
};

// Every number that changes from step to step and that a kernel reads, in device memory, so that a recorded step stays
// right when it is replayed. What is not an input the kernels `clip` and `end_step` (loam/kernels/optimizer.h) carry on
// from step to step, so that the next one may be launched before the host knows how this one ended.
struct StepState : StepInputs {
  int64_t updates = 0;       // that the optimizer has made before this step: Adam's t - 1
  double gradient_norm = 0;  // before clipping
  float gradient_scale = 1;  // clipping, over the loss scale
  float loss_scale = 1;      // times loss_factor
  float step_scale = 1;      // the loss scale that the gradients at hand have
  int32_t good_steps = 0;    // since the loss scale changed last
  int32_t skip = 0;          // not 0: the step is bad (non-finite gradients); the optimizer changes nothing
  int32_t stopped = 0;       // not 0: a loss was not finite; so is every step from there on, until the host ends it
};

struct ExecContext {
  Device device;
  Stream stream;
  Arena* arena = nullptr;
  const KernelTable* kernels = nullptr;
  int threads = 1;
  Numerics numerics = Numerics::fast;
  bool tf32 = false;                 // a GPU's products of f32 may round their factors to TF32, unless exact
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

// Bytes of the device's memory on their way to the host's.
class Download {
 public:
  virtual ~Download() = default;
  virtual const void* wait() = 0;  // returns when they are there, for as long as this object is
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
  // Bytes of the device's memory as they are after the work so far. Returns before they are there.
  virtual std::unique_ptr<Download> download(const void* from, int64_t bytes) = 0;
  // What `work` launches, recorded and not run. It must neither wait for the device nor upload. REQUIRES: the memory
  // that it takes from the arena is nobody else's at a replay.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work) = 0;
  // Marks the place behind all work so far, to measure time on the device; they count 0, 1, ... from clear_marks() on.
  virtual int64_t mark() = 0;
  // Between two of them. Waits for the later one.
  virtual double seconds_between(int64_t from, int64_t to) = 0;
  virtual void clear_marks() = 0;
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
