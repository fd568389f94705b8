// `loam train --profile`: where the time and the memory of a step go.
#pragma once

#include "loam/train/trainer.h"

namespace loam {

// Profiles the first steps of the run that `options` describe, prints the table (or ops.json) and writes OUT/profile,
// and nothing else. The exit status.
int profile_run(const ExecContext& ctx, const TrainConfig& config, const RunOptions& options, int64_t steps,
                bool as_json);

}  // namespace loam
