// The table of kernels of one device, made from kernels.def. A kernel is an allocation-free function on views
// (workspace comes from the context's arena and goes back before it returns); an op checks shapes and allocates, so
// kernels check only in debug builds.
#pragma once

#include <string_view>

#include "loam/base/error.h"
#include "loam/kernels/activation.h"
#include "loam/kernels/attention.h"
#include "loam/kernels/cross_entropy.h"
#include "loam/kernels/dropout.h"
#include "loam/kernels/elementwise.h"
#include "loam/kernels/embedding.h"
#include "loam/kernels/exec_context.h"
#include "loam/kernels/matmul.h"
#include "loam/kernels/norm.h"
#include "loam/kernels/optimizer.h"
#include "loam/kernels/rope.h"

namespace loam {

// The same call, timed and counted in ctx.profile (loam/kernels/profile.h).
template <class Args>
void call_profiled(const ExecContext& ctx, const char* name, void (*function)(const ExecContext&, const Args&),
                   const Args& args);

// One entry. Calling a hole raises one clear error.
template <class Args>
struct KernelSlot {
  using Function = void (*)(const ExecContext&, const Args&);
  const char* name;
  Function function = nullptr;

  void operator()(const ExecContext& ctx, const Args& args) const {
    if (!function) [[unlikely]] {
      fail(ErrorCode::kUnavailable, "kernel {} is not there for device {}", name, device_name(ctx.device));
    }
    if (!ctx.profile) [[likely]]
      return function(ctx, args);
    call_profiled(ctx, name, function, args);
  }
};

struct KernelTable {
#define LOAM_KERNEL(name, Args) KernelSlot<Args> name{#name};
#include "loam/kernels/kernels.def"
#undef LOAM_KERNEL
};

// The CPU's table, and the GPUs' in a build with CUDA, complete.
const KernelTable& cpu_kernel_table();
const KernelTable& cuda_kernel_table();

}  // namespace loam
