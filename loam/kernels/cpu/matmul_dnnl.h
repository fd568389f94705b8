// The matrix product by oneDNN, for machines whose processor multiplies bf16 itself.
#pragma once

#include "loam/kernels/matmul.h"

namespace loam::cpu {

// True if the processor has bf16 instructions (AVX512_BF16 or AMX) and this build may use oneDNN.
bool dnnl_has_bf16();

// Runs the product unless oneDNN has no form of it; false: nothing was done. Primitives are kept by shape, strides and
// types. REQUIRES: M, N and K are not 0. Thread safety: any thread.
bool dnnl_matmul(const ExecContext& ctx, const MatmulArgs& args);

}  // namespace loam::cpu
