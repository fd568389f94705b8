#include "loam/kernels/matmul.h"

#include "loam/kernels/cpu/gemm.h"
#include "loam/kernels/cpu/matmul_dnnl.h"
#include "loam/kernels/cpu/register.h"
#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

// The variant is a function of shape, machine and level. At level exact it is always our own packed product, in which
// no element depends on the shape.
void matmul(const ExecContext& ctx, const MatmulArgs& args) {
  if (ctx.numerics == Numerics::exact) return cpu::gemm(ctx, args);
  const int64_t m = args.c.dim(0), k = args.a.dim(args.transpose_a ? 0 : 1);
  if (m <= cpu::kSkinnyRows && args.transpose_b && !args.transpose_a) return cpu::skinny_gemm(ctx, args);
  const bool empty = args.c.numel() == 0 || k == 0;
  static const bool has_bf16 = cpu::dnnl_has_bf16();
  if (has_bf16 && args.a.dtype == DType::bf16 && !empty && cpu::dnnl_matmul(ctx, args)) return;
  cpu::gemm(ctx, args);
}

}  // namespace

void register_matmul_kernels(KernelTable& table) { table.matmul.function = matmul; }

}  // namespace loam
