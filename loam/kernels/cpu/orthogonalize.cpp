#include "loam/kernels/cpu/orthogonalize.h"

#include <algorithm>
#include <cmath>

#include "loam/kernels/kernel_table.h"

namespace loam::cpu {
namespace {

void scale(const ExecContext& ctx, const View& in, float factor, const View& out) {
  ctx.kernels->scale(ctx, {.in = in, .factor = factor, .out = out});
}

// c += factor a b
void add_product(const ExecContext& ctx, const View& a, const View& b, float factor, const View& c) {
  ctx.kernels->matmul(ctx, {.a = a, .b = b, .c = c, .bias = {}, .alpha = factor, .accumulate = true});
}

}  // namespace

// Legend: R rows, C columns, S the smaller of the two.
void orthogonalize(const ExecContext& ctx, const OrthogonalizeArgs& args) {
  constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
  constexpr double kSmallest = 1e-7;
  const int64_t rows = args.x.dim(0), cols = args.x.dim(1), small = std::min(rows, cols);
  const bool tall = rows > cols;
  const auto matrix = [&](int64_t r, int64_t c) { return ctx.empty({r, c}, DType::f32, MemoryKind::workspace); };
  const Tensor other = matrix(rows, cols);                                  // [R,C]
  const Tensor square = matrix(small, small), poly = matrix(small, small);  // [S,S]

  double squares = 0;
  ctx.kernels->sum_squares(ctx, {.x = args.x, .out = &squares});
  scale(ctx, args.x, static_cast<float>(1 / std::max(std::sqrt(squares), kSmallest)), args.x);
  View x = args.x, next = other;
  for (int step = 0; step < args.steps; ++step) {
    ctx.kernels->matmul(ctx, {.a = x, .transpose_a = tall, .b = x, .transpose_b = !tall, .c = square, .bias = {}});
    scale(ctx, square, kB, poly);
    add_product(ctx, square, square, kC, poly);
    scale(ctx, x, kA, next);
    if (tall) {
      add_product(ctx, x, poly, 1, next);
    } else {
      add_product(ctx, poly, x, 1, next);
    }
    std::swap(x, next);
  }
  if (args.steps % 2 != 0) ctx.kernels->copy(ctx, {.in = x, .out = args.x});
}

}  // namespace loam::cpu
