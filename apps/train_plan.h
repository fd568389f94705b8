// `loam train --dry-run`: what a run needs, before it starts.
#pragma once

#include "loam/config/train_config.h"
#include "loam/kernels/exec_context.h"

namespace loam {

// Prints parameters, memory, tokens and the time that a run will take. Returns the exit status: 1 if it does not fit.
int print_run_plan(const ExecContext& ctx, const TrainConfig& given, bool as_json);

}  // namespace loam
