// How long each kernel of loam/kernels/kernels.def takes, at the sizes of GPT-2 124M.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loam/kernels/exec_context.h"
#include "loam/kernels/profile.h"

namespace loam {

// B rows of T tokens, C width, H heads, F hidden width, V vocabulary.
struct KernelsBenchSizes {
  int64_t B = 4, T = 256, C = 768, H = 12, F = 3072, V = 50257;
  int64_t decoded = 1024;                                           // keys of the token that is decoded
  int64_t group = int64_t{1} << 24;                                 // parameters of an optimizer group
  int64_t rotated = int64_t{256} << 20;                             // bytes of operands before they come again
  std::vector<int64_t> head_rows = {64, 128, 256, 333, 512, 1024};  // of logits at a time
  struct Attention {
    int64_t B, T, H, D;
  };
  std::vector<Attention> attention = {};  // further ones, causal
};
// Those above on a CPU; on a GPU 16 rows of 1024 tokens, and attention over 1 to 16 rows of 1 to 16 thousand.
KernelsBenchSizes kernels_bench_sizes(DeviceKind device);

struct KernelsBenchOptions {
  DType dtype = DType::f32;  // of matrices and activations
  std::string only;          // a name or the beginning of one; empty: all
  double seconds = 0.3;      // for each, at least; and at least five calls
  KernelsBenchSizes sizes;
};

struct KernelsBenchResult {
  std::string name;     // "qkv_fwd", "layer_norm_bwd", ...
  std::string kernel;   // as kernels.def has it; "" for several in a row
  std::string variant;  // "table": what the program runs; matrix products also "gemm" (our own) and "dnnl" (oneDNN's)
  KernelWork work;      // of one call
  double median_seconds = 0, best_seconds = 0;
  int64_t calls = 0;
};

// Calls `report` with each result as it is found; variants alternate. Operands are noise, and rotate over
// `sizes.rotated` bytes, so that each call finds them in memory and not in a cache, as a step does. On a GPU the
// device's own marks give the times, with work queued ahead of every call.
void bench_kernels(const ExecContext& ctx, const KernelsBenchOptions& options,
                   const std::function<void(const KernelsBenchResult&)>& report);

}  // namespace loam
