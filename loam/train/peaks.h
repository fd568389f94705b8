// What the device at hand reaches at most.
#pragma once

#include "loam/kernels/exec_context.h"
#include "loam/kernels/profile.h"

namespace loam {

// Matrix products as measure_matmul_rate() has them, in f32 and bf16, and the copy of a buffer far larger than any
// cache. Takes a second or less.
DevicePeaks measure_peaks(const ExecContext& ctx);

}  // namespace loam
