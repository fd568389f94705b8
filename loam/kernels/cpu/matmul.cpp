#include "loam/kernels/matmul.h"

#include <hwy/targets.h>

#include "loam/kernels/cpu/gemm.h"
#include "loam/kernels/cpu/gemm_amx.h"
#include "loam/kernels/cpu/matmul_dnnl.h"
#include "loam/kernels/cpu/register.h"
#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

// Tiles must pay for packing A for N columns and B for M rows; f32 is packed for six products.
bool worth_tiles(DType dtype, int64_t m, int64_t n, int64_t k) {
  const int64_t least = dtype == DType::f32 ? 128 : 240;
  return m * n >= least * (m + n) && k >= 64;
}

// oneDNN's bf16 product uses the processor's instructions for it. Its f32 product is about a tenth faster than ours on
// AVX-512.
bool may_use_dnnl(Numerics numerics, DType dtype) {
  if (numerics == Numerics::exact) return false;
  static const bool has_bf16 = cpu::dnnl_has_bf16();
  if (dtype != DType::f32) return dtype == DType::bf16 && has_bf16;
  return numerics == Numerics::fast && !cpu::has_amx() && (hwy::SupportedTargets() & HWY_AVX3) != 0;
}

// The variant is a function of shape, machine and level. At level exact it is always our own packed product, in which
// no element depends on the shape.
void matmul(const ExecContext& ctx, const MatmulArgs& args) {
  if (ctx.numerics == Numerics::exact) return cpu::gemm(ctx, args);
  const DType dtype = args.a.dtype;
  const int64_t m = args.c.dim(0), n = args.c.dim(1), k = args.a.dim(args.transpose_a ? 0 : 1);
  if (m <= cpu::kSkinnyRows && args.transpose_b && !args.transpose_a) return cpu::skinny_gemm(ctx, args);
  if (dtype == DType::f16) return cpu::gemm(ctx, args);  // which alone knows it
  if (cpu::has_amx() && worth_tiles(dtype, m, n, k)) return cpu::amx_gemm(ctx, args);
  // There oneDNN's f32 product takes 1.7 times as long as ours.
  const bool wide = dtype == DType::f32 && !args.transpose_b && n > 2048;
  const bool empty = args.c.numel() == 0 || k == 0;
  if (may_use_dnnl(ctx.numerics, dtype) && !wide && !empty && cpu::dnnl_matmul(ctx, args)) return;
  cpu::gemm(ctx, args);
}

}  // namespace

bool matmul_depends_on_threads(Numerics numerics, DType dtype) { return may_use_dnnl(numerics, dtype); }

void register_matmul_kernels(KernelTable& table) { table.matmul.function = matmul; }

}  // namespace loam
