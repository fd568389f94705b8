#include "loam/kernels/matmul.h"

#include "loam/kernels/cpu/gemm.h"
#include "loam/kernels/cpu/register.h"
#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

void matmul(const ExecContext& ctx, const MatmulArgs& args) {
  const bool skinny = args.c.dim(0) <= cpu::kSkinnyRows && args.transpose_b && !args.transpose_a;
  if (skinny && ctx.numerics != Numerics::exact) return cpu::skinny_gemm(ctx, args);
  cpu::gemm(ctx, args);
}

}  // namespace

void register_matmul_kernels(KernelTable& table) { table.matmul.function = matmul; }

}  // namespace loam
