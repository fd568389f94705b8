// The sum over rows that several kernels end with.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam::cuda {

// out[c] (+)= sum over n of in[n, c], in an order that depends on `rows` alone. in [rows, cols] is contiguous.
void sum_rows(const ExecContext& ctx, const float* in, int64_t rows, int64_t cols, float* out, bool accumulate);

}  // namespace loam::cuda
