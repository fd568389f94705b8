// A context to count memory with (loam/train/trainer.h, predict_memory): nothing runs, and the device need not be
// there.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

// Its arena is sparse. What only the device's libraries know, the workspace of matrix products, is the most that it may
// be. Error{kUnavailable} for a device that is not built in.
ExecResources make_counting_resources(Device device, int threads = available_cores());

}  // namespace loam
