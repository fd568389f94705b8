// A matrix product and its reference, which sums in f64. Legend as in matmul.h.
#pragma once

#include <gtest/gtest.h>

#include "loam/kernels/cpu/gemm.h"
#include "tests/kernels/kernel_testing.h"

namespace loam::testing {

struct Case {
  int64_t M, N, K;
  bool transpose_a = false, transpose_b = false;
  DType dtype = DType::f32, c_dtype = DType::f32;
  bool bias = false, accumulate = false;
  double alpha = 1;
  int64_t padding = 0;
  Numerics numerics = Numerics::fast;
  int threads = 1;
  DType bias_dtype = dtype;
  std::string name() const {
    return fmt::format("M{} N{} K{} ta{} tb{} {} -> {} bias{} {} add{} alpha{} padding{} level{} threads{}", M, N, K,
                       transpose_a, transpose_b, dtype_name(dtype), dtype_name(c_dtype), bias, dtype_name(bias_dtype),
                       accumulate, alpha, padding, static_cast<int>(numerics), threads);
  }
};

// The types of operands and result.
struct Types {
  DType operand, result;
};
constexpr Types kTypes[] = {{DType::f32, DType::f32},
                            {DType::bf16, DType::f32},
                            {DType::bf16, DType::bf16},
                            {DType::f16, DType::f32},
                            {DType::f16, DType::f16}};
constexpr DType kTileTypes[] = {DType::f32, DType::bf16};  // that the product by tiles has

// A variant of the product; false: it has no form of this one, and nothing was done.
using Product = bool (*)(const ExecContext&, const MatmulArgs&);

inline bool by_table(const ExecContext& ctx, const MatmulArgs& args) {
  ctx.kernels->matmul(ctx, args);
  return true;
}
inline bool by_gemm(const ExecContext& ctx, const MatmulArgs& args) {
  cpu::gemm(ctx, args);
  return true;
}

struct Problem {
  Problem(const Case& c, uint64_t seed)
      : test(c),
        a(c.dtype, c.transpose_a ? c.K : c.M, c.transpose_a ? c.M : c.K, c.padding, random_values(c.M * c.K, seed)),
        b(c.dtype, c.transpose_b ? c.N : c.K, c.transpose_b ? c.K : c.N, 2 * c.padding,
          random_values(c.N * c.K, seed + 1)),
        c_out(c.c_dtype, c.M, c.N, c.padding, random_values(c.M * c.N, seed + 2)),
        bias(c.bias_dtype, 1, c.N, 0, random_values(c.N, seed + 3)) {}

  bool run(Product product = by_table) {
    const auto resources = test_resources(test.threads, test.numerics);
    return product(resources.context, args());
  }
  MatmulArgs args() const {
    return {.a = a.view(),
            .transpose_a = test.transpose_a,
            .b = b.view(),
            .transpose_b = test.transpose_b,
            .c = c_out.view(),
            .bias = test.bias ? bias.row() : View{},
            .alpha = static_cast<float>(test.alpha),
            .accumulate = test.accumulate};
  }

  // The result, and the norm-wise scale of its error: the sum of absolute values. No sanitizer watches these sums,
  // which would be most of the time.
  __attribute__((no_sanitize("address", "thread", "undefined"))) std::pair<Values, Values> reference() const {
    Values value, size;
    const Values as = a.values(), bs = b.values();
    const int64_t a_row = test.transpose_a ? 1 : test.K, a_k = test.transpose_a ? test.M : 1;
    const int64_t b_column = test.transpose_b ? test.K : 1, b_k = test.transpose_b ? 1 : test.N;
    for (int64_t m = 0; m < test.M; ++m) {
      for (int64_t n = 0; n < test.N; ++n) {
        const double *from_a = as.data() + m * a_row, *from_b = bs.data() + n * b_column;
        double sum = 0, all = 0;
        for (int64_t k = 0; k < test.K; ++k) {
          const double term = from_a[k * a_k] * from_b[k * b_k];
          sum += term;
          all += std::abs(term);
        }
        const double before = test.accumulate ? c_out.get(m, n) : 0, offset = test.bias ? bias.get(0, n) : 0;
        value.push_back(test.alpha * sum + before + offset);
        size.push_back(std::abs(test.alpha) * all + std::abs(before) + std::abs(offset));
      }
    }
    return {value, size};
  }

  Case test;
  Matrix a, b, c_out, bias;
};

// |error| of one f32 sum is at most (K + 3) u times the sum of absolute values, and in practice sqrt(K) of it; then the
// result's rounding.
inline void expect_matches(const Case& c, uint64_t seed, Product product = by_table) {
  SCOPED_TRACE(c.name());
  Problem p(c, seed);
  const auto [value, size] = p.reference();
  ASSERT_TRUE(p.run(product));
  EXPECT_TRUE(p.a.intact() && p.b.intact() && p.c_out.intact() && p.bias.intact());
  const double relative = unit_roundoff(DType::f32) * (3 + std::sqrt(static_cast<double>(c.K)));
  const double rounding = c.c_dtype == DType::f32 ? 0 : unit_roundoff(c.c_dtype);
  for (size_t i = 0; i < value.size(); ++i) {
    const double actual = p.c_out.get(static_cast<int64_t>(i) / c.N, static_cast<int64_t>(i) % c.N);
    const double offset =
        c.bias && c.bias_dtype == DType::f32 ? std::abs(p.bias.get(0, static_cast<int64_t>(i) % c.N)) : 0;
    const double bound =
        relative * size[i] + rounding * (std::abs(value[i]) + offset + relative * size[i]) + 2 * underflow(c.c_dtype);
    ASSERT_LE(std::abs(actual - value[i]), bound) << "element " << i << ": " << actual << ", expected " << value[i];
  }
}

}  // namespace loam::testing
