// How long each kernel of a training step takes, at the sizes of GPT-2 124M with 4 rows of 256 tokens.
#pragma once

#include <functional>
#include <string>

#include "loam/kernels/exec_context.h"

namespace loam {

struct KernelsBenchOptions {
  DType dtype = DType::f32;  // of matrices and activations
  std::string only;          // an operation or the beginning of its name; empty: all
  double seconds = 0.3;      // for each operation, at least; and at least five calls
};

struct KernelsBenchResult {
  std::string op;       // "qkv_fwd", "layer_norm_bwd", ...
  std::string variant;  // "table": what the program runs; matrix products also "gemm" (our own) and "dnnl" (oneDNN's)
  double median_seconds = 0, best_seconds = 0;
  double flops = 0, bytes = 0;  // of one call: arithmetic, and memory that must move at least; 0: not counted
  int64_t calls = 0;
};

// Calls `report` with each result as it is found; variants of an operation alternate. Buffers rotate over 256 MiB, so
// that each call finds its operands in memory, as a step does.
void bench_kernels(const ExecContext& ctx, const KernelsBenchOptions& options,
                   const std::function<void(const KernelsBenchResult&)>& report);

}  // namespace loam
