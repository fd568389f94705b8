// Our own matrix product for the CPU: packed panels and a register tile, for any float dtype, in f32 arithmetic (Goto
// and van de Geijn 2008, "Anatomy of high-performance matrix multiplication"). Legend as in matmul.h.
//
// K is cut into blocks of a fixed length, and each element is a fixed chain of multiply-adds: its bits depend on
// nothing but its row of op(a), its column of op(b), alpha and bias; not on M, N, the strides' kind or the number of
// threads. So this variant serves every numerics level.
#pragma once

#include "loam/kernels/matmul.h"

namespace loam::cpu {

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

// One matrix operand, its element (row or column r, k) at data[r * r_stride + k * k_stride]; one of the strides is 1.
struct Operand {
  const void* data;
  int64_t r_stride, k_stride;
};

// Any shape. Workspace: at most 2.7 MiB (5.3 MiB with a result of 16 bits) for each thread, and N floats for a bias.
void gemm(const ExecContext& ctx, const MatmulArgs& args);

// y = x W^T for M <= kSkinnyRows: streams W once and packs nothing. A row's bits do not depend on M, but differ from
// gemm's.
inline constexpr int64_t kSkinnyRows = 8;
void skinny_gemm(const ExecContext& ctx, const MatmulArgs& args);

// The bias in f32, filled up with zeros to whole tiles of every variant; absent stays absent.
Tensor padded_bias(const ExecContext& ctx, const View& bias, int64_t n);

}  // namespace loam::cpu
