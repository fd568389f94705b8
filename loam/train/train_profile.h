// Steps of training, taken apart: the time of each kernel against what the device can do, the phases of the step, and
// the memory over it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/kernels/memory_profile.h"
#include "loam/kernels/profile.h"
#include "loam/train/trainer.h"

namespace loam {

struct TrainProfile {
  std::string device;  // "cpu", or the GPU's name
  DevicePeaks peaks;
  KernelProfile kernels;
  MemoryProfile memory;
  std::vector<double> step_seconds;  // by the host's clock, until the device is done
  int64_t tokens_per_step = 0;

  explicit TrainProfile(const ExecContext& ctx);
};

// `steps` steps after `warm_up` others, from new weights; on a GPU op by op, not as a recording.
std::unique_ptr<TrainProfile> profile_training(const ExecContext& ctx, const TrainConfig& config, TrainingData data,
                                               int64_t steps, int64_t warm_up = 3);

// For people: the kernels by the time that they take of a step, what lies between them, the phases, the peak of memory.
std::string profile_table(const TrainProfile& profile);
// {"device", "peaks", "tokens_per_step", "step_seconds", "kernel_seconds", "between_seconds", "phases", "kernels"}; all
// but the steps' are sums over the steps. A kernel: {"name", "shape", "dtype", "calls", "seconds", "flops", "bytes",
// "flops_per_second", "bytes_per_second", "roofline"}.
Json profile_kernels(const TrainProfile& profile);
// {"peak_bytes", "peak_seconds", "peak_phase", "peak_by_kind", "tensors", "timeline"}: the hundred largest blocks at
// the peak, and [seconds, bytes of each kind in the order of "kinds"] whenever they change.
Json profile_memory(const TrainProfile& profile);
// In Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open: kernels, phases, memory.
Json profile_trace(const TrainProfile& profile);
// Of these three ops.json, memory.json and trace.json in a directory that is there.
void write_profile(const TrainProfile& profile, const Path& directory);
inline const std::vector<std::string> kProfileFiles = {"ops.json", "memory.json", "trace.json"};

}  // namespace loam
