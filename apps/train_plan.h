// `loam train --dry-run`: what a run needs, before it starts.
#pragma once

#include "loam/config/train_config.h"
#include "loam/kernels/exec_context.h"
#include "loam/train/trainer.h"

namespace loam {

// Prints parameters, memory, tokens and the time that a run will take, after every check that the run itself would make
// of its data and of the directory. Returns the exit status: 1 if it does not fit.
int print_run_plan(const ExecContext& ctx, const TrainConfig& given, const RunOptions& options, bool as_json);

}  // namespace loam
