// What every kernel call needs to know: where it runs, with which memory, threads and numerics. First argument
// everywhere; there are no globals.
#pragma once

#include <cstdint>
#include <memory>

#include "loam/base/parallel_for.h"
#include "loam/tensor/arena.h"
#include "loam/tensor/device.h"
#include "loam/tensor/tensor.h"

namespace loam {

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
  int64_t first_sample = 0;  // global sample of the first row of the micro-batch at hand
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
  StepState* step = nullptr;         // null outside training
  KernelProfile* profile = nullptr;  // not null: every kernel call is timed

  Tensor empty(const Shape& shape, DType dtype, MemoryKind kind = MemoryKind::activations) const {
    return Tensor::empty(*arena, shape, dtype, kind);
  }
};

// Owns what a context points to.
struct ExecResources {
  std::shared_ptr<Arena> arena;
  ExecContext context;
};
// A context on `device` with its own arena. Error{kUnavailable} if the device is not there or not built in.
ExecResources make_exec_resources(Device device, int threads = available_cores(), Numerics numerics = Numerics::fast);

}  // namespace loam
