// How long a training step takes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loam/config/train_config.h"
#include "loam/kernels/exec_context.h"
#include "loam/train/train_profile.h"

namespace loam {

struct TrainBenchResult {
  std::vector<double> step_seconds;  // of each timed step
  double median_seconds = 0;
  double tokens_per_second = 0;
  double flops_per_second = 0;  // model FLOPs: 6 per matrix weight and token, and attention's
  int64_t parameters = 0, peak_bytes = 0;
  std::unique_ptr<TrainProfile> profile;  // of the timed steps, if it was asked for
};

// Whole steps (forward, backward, clipping, AdamW) of a derived configuration on random tokens, after two that are not
// timed; on a GPU as a run makes them, recorded. With `profile` op by op, each kernel timed by itself.
TrainBenchResult bench_train(const ExecContext& ctx, const TrainConfig& config, int64_t steps, bool profile = false);

}  // namespace loam
