// The matrix product on processors that multiply tiles of bf16 (AMX-BF16: Sapphire Rapids and later). Legend as in
// matmul.h.
//
// bf16 operands are multiplied as they are. An f32 operand is cut into three bf16 parts, x = x0 + x1 + x2 exactly, each
// the rest rounded to nearest, and the six products with i + j <= 2 are summed: what is left out is at most 1.02 *
// 2^-24 of |a b|, and since 32 products are summed before they meet a large sum, the whole error is that of an f32
// product or less (Henry, Tang and Heinecke 2019, "Leveraging the bfloat16 artificial intelligence datatype for
// higher-precision computations"). The tiles flush numbers under 2^-126 to zero: elements of f32 operands, and sums,
// count up to an absolute 2^-126. Operands with a value that is not finite or that would round to infinity take the
// plain product.
//
// Each element is a fixed chain of sums over its row of op(a) and its column of op(b): the bits depend neither on M, N
// nor the number of threads, but for the rows that share a product with a value that is not finite.
#pragma once

#include "loam/kernels/matmul.h"

namespace loam::cpu {

// True if the processor has AMX-BF16 and the system lets this process use it.
bool has_amx();

// Which tiles multiply: the processor's, or their description in C++, for tests of all the rest on any machine.
enum class Tiles { processor, emulated };

// Workspace: at most 16 MiB of packed operands, 4 N bytes for a bias, and 16 MiB for a bf16 result of a K above 1536.
// REQUIRES: M, N and K are not 0; has_amx() unless emulated.
void amx_gemm(const ExecContext& ctx, const MatmulArgs& args, Tiles tiles = Tiles::processor);

}  // namespace loam::cpu
