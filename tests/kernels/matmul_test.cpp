// Legend as in matmul.h. The reference sums in f64.
#include <gtest/gtest.h>

#include <limits>

#include "loam/kernels/cpu/matmul_dnnl.h"
#include "tests/kernels/kernel_testing.h"

namespace loam::testing {
namespace {

struct Case {
  int64_t M, N, K;
  bool transpose_a = false, transpose_b = false;
  DType dtype = DType::f32, c_dtype = DType::f32;
  bool bias = false, accumulate = false;
  double alpha = 1;
  int64_t padding = 0;
  Numerics numerics = Numerics::fast;
  int threads = 1;
  std::string name() const {
    return fmt::format("M{} N{} K{} ta{} tb{} {} -> {} bias{} add{} alpha{} padding{} level{} threads{}", M, N, K,
                       transpose_a, transpose_b, dtype_name(dtype), dtype_name(c_dtype), bias, accumulate, alpha,
                       padding, static_cast<int>(numerics), threads);
  }
};

struct Problem {
  Problem(const Case& c, uint64_t seed)
      : test(c),
        a(c.dtype, c.transpose_a ? c.K : c.M, c.transpose_a ? c.M : c.K, c.padding, random_values(c.M * c.K, seed)),
        b(c.dtype, c.transpose_b ? c.N : c.K, c.transpose_b ? c.K : c.N, 2 * c.padding,
          random_values(c.N * c.K, seed + 1)),
        c_out(c.c_dtype, c.M, c.N, c.padding, random_values(c.M * c.N, seed + 2)),
        bias(c.dtype, 1, c.N, 0, random_values(c.N, seed + 3)) {}

  void run() {
    const auto resources = make_exec_resources({}, test.threads, test.numerics);
    resources.context.kernels->matmul(resources.context, args());
  }
  bool run_dnnl() {
    const auto resources = make_exec_resources({}, test.threads, test.numerics);
    return cpu::dnnl_matmul(resources.context, args());
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
void expect_matches(const Case& c, uint64_t seed, bool dnnl = false) {
  SCOPED_TRACE(c.name());
  Problem p(c, seed);
  const auto [value, size] = p.reference();
  if (dnnl) {
    ASSERT_TRUE(p.run_dnnl());
  } else {
    p.run();
  }
  EXPECT_TRUE(p.a.intact() && p.b.intact() && p.c_out.intact() && p.bias.intact());
  const double relative = unit_roundoff(DType::f32) * (3 + std::sqrt(static_cast<double>(c.K)));
  const double rounding = c.c_dtype == DType::bf16 ? unit_roundoff(DType::bf16) : 0;
  for (size_t i = 0; i < value.size(); ++i) {
    const double actual = p.c_out.get(static_cast<int64_t>(i) / c.N, static_cast<int64_t>(i) % c.N);
    const double bound = relative * size[i] + rounding * (std::abs(value[i]) + relative * size[i]);
    ASSERT_LE(std::abs(actual - value[i]), bound) << "element " << i << ": " << actual << ", expected " << value[i];
  }
}

TEST(Matmul, OddShapesMatchReference) {
  uint64_t seed = 1;
  const int64_t sizes[] = {1, 2, 3, 5, 6, 7, 8, 9, 13, 16, 17, 31, 33};
  for (int64_t M : sizes) {
    for (int64_t N : sizes) {
      for (int64_t K : {1, 3, 8, 17, 40}) {
        const auto bits = static_cast<unsigned>(seed);
        expect_matches({.M = M,
                        .N = N,
                        .K = K,
                        .transpose_a = (bits & 1) != 0,
                        .transpose_b = (bits & 2) != 0,
                        .dtype = bits & 4 ? DType::bf16 : DType::f32,
                        .c_dtype = (bits & 12) == 12 ? DType::bf16 : DType::f32,
                        .bias = (bits & 16) != 0,
                        .accumulate = (bits & 32) != 0,
                        .alpha = bits & 64 ? 0.75 : 1.0,
                        .padding = static_cast<int64_t>(bits % 3),
                        .numerics = bits % 5 == 0 ? Numerics::exact : Numerics::fast},
                       seed);
        ++seed;
      }
    }
  }
}

// Over the edges of every blocking: rows, columns and K.
TEST(Matmul, LargeShapesMatchReference) {
  uint64_t seed = 5000;
  for (auto [M, N, K] : std::vector<std::array<int64_t, 3>>{
           {200, 97, 257}, {193, 300, 600}, {50, 1200, 70}, {390, 40, 513}, {9, 513, 300}, {700, 70, 30}}) {
    for (bool ta : {false, true}) {
      for (bool tb : {false, true}) {
        for (int dtypes = 0; dtypes < 3; ++dtypes) {
          expect_matches({.M = M,
                          .N = N,
                          .K = K,
                          .transpose_a = ta,
                          .transpose_b = tb,
                          .dtype = dtypes ? DType::bf16 : DType::f32,
                          .c_dtype = dtypes == 2 ? DType::bf16 : DType::f32,
                          .bias = ta,
                          .accumulate = tb,
                          .padding = 3,
                          .threads = 2},
                         seed++);
        }
      }
    }
  }
}

TEST(Matmul, DecodeShapesMatchReference) {
  uint64_t seed = 6000;
  for (int64_t M = 1; M <= 9; ++M) {
    for (auto [N, K] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 64}, {130, 100}, {257, 768}}) {
      for (int dtypes = 0; dtypes < 3; ++dtypes) {
        expect_matches({.M = M,
                        .N = N,
                        .K = K,
                        .transpose_b = true,
                        .dtype = dtypes ? DType::bf16 : DType::f32,
                        .c_dtype = dtypes == 2 ? DType::bf16 : DType::f32,
                        .bias = M % 2 == 0,
                        .accumulate = M % 3 == 0,
                        .alpha = 0.5,
                        .padding = 1,
                        .threads = 2},
                       seed++);
      }
    }
  }
}

TEST(Matmul, EveryInstructionSetMatchesReference) {
  for_each_target([] {
    uint64_t seed = 7000;
    for (int64_t M : {1, 4, 13, 50}) {
      for (DType dtype : kFloats) {
        for (bool t : {false, true}) {
          expect_matches({.M = M,
                          .N = 75,
                          .K = 270,
                          .transpose_a = t,
                          .transpose_b = !t,
                          .dtype = dtype,
                          .c_dtype = dtype,
                          .bias = true},
                         seed++);
          expect_matches({.M = M, .N = 75, .K = 270, .transpose_a = t, .transpose_b = t, .dtype = dtype}, seed++);
        }
      }
    }
  });
}

// The library's variant serves bf16 where the processor has it; its f32 form is as good a test of our description of
// operands.
TEST(Matmul, DnnlMatchesReference) {
  uint64_t seed = 7500;
  for (int options = 0; options < 32; ++options) {
    for (auto [M, N, K] : std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {20, 33, 17}, {65, 40, 300}}) {
      Case c{.M = M,
             .N = N,
             .K = K,
             .transpose_a = (options & 1) != 0,
             .transpose_b = (options & 2) != 0,
             .bias = (options & 4) != 0,
             .accumulate = (options & 8) != 0,
             .alpha = options & 4 ? 1.0 : 0.5,
             .padding = options & 16 ? 3 : 0,
             .threads = 2};
#ifdef LOAM_STD_THREADS
      GTEST_SKIP() << "oneDNN is left out of builds for ThreadSanitizer";
#endif
      expect_matches(c, seed, true);
      expect_matches(c, seed, true);  // by the primitive that was kept
      if (!cpu::dnnl_has_bf16()) continue;
      for (DType result : kFloats) {
        c.dtype = DType::bf16, c.c_dtype = result;
        expect_matches(c, ++seed, true);
      }
    }
  }
}

// An empty sum is 0, and the bias and what is accumulated remain.
TEST(Matmul, EmptyShapes) {
  for (Numerics level : {Numerics::fast, Numerics::exact}) {
    for (int64_t M : {1, 20}) {
      for (bool tb : {false, true}) {
        expect_matches({.M = M, .N = 5, .K = 0, .transpose_b = tb, .numerics = level}, 1);
        expect_matches({.M = M,
                        .N = 5,
                        .K = 0,
                        .transpose_b = tb,
                        .dtype = DType::bf16,
                        .c_dtype = DType::bf16,
                        .bias = true,
                        .accumulate = true,
                        .numerics = level},
                       2);
        expect_matches({.M = M, .N = 0, .K = 5, .transpose_b = tb, .bias = true, .numerics = level}, 3);
      }
    }
    expect_matches({.M = 0, .N = 5, .K = 5, .numerics = level}, 4);
    expect_matches({.M = 0, .N = 5, .K = 5, .transpose_b = true, .numerics = level}, 4);
  }
}

TEST(Matmul, RunsAndThreadsGiveTheSameBits) {
  for (DType dtype : kFloats) {
    for (int64_t M : {3, 150}) {
      Case c{.M = M, .N = 300, .K = 520, .transpose_b = true, .dtype = dtype, .c_dtype = dtype};
      Problem first(c, 8000), again(c, 8000);
      first.run(), again.run();
      EXPECT_EQ(first.c_out.memory(), again.c_out.memory());
      c.threads = 2;
      Problem two(c, 8000);
      two.run();
      EXPECT_EQ(first.c_out.memory(), two.c_out.memory()) << c.name();
    }
  }
}

// At level exact, the first rows of a large product are the product of the first rows.
TEST(Matmul, ExactRowsDoNotDependOnM) {
  for (bool tb : {false, true}) {
    for (DType dtype : kFloats) {
      const Case large{.M = 300,
                       .N = 200,
                       .K = 600,
                       .transpose_b = tb,
                       .dtype = dtype,
                       .c_dtype = dtype,
                       .bias = true,
                       .numerics = Numerics::exact,
                       .threads = 2};
      Problem all(large, 9000);
      all.run();
      for (int64_t M : {1, 2, 7, 8, 9, 100}) {
        Case c = large;
        c.M = M;
        Problem some(c, 9000);  // the seed's first values: the same first rows of a
        for (int64_t k = 0; k < c.K; ++k) {
          for (int64_t n = 0; n < c.N; ++n) tb ? some.b.put(n, k, all.b.get(n, k)) : some.b.put(k, n, all.b.get(k, n));
        }
        for (int64_t n = 0; n < c.N; ++n) some.bias.put(0, n, all.bias.get(0, n));
        some.run();
        for (int64_t m = 0; m < M; ++m) {
          for (int64_t n = 0; n < c.N; ++n)
            ASSERT_EQ(some.c_out.get(m, n), all.c_out.get(m, n)) << M << " " << m << " " << n;
        }
      }
    }
  }
}

TEST(Matmul, NonFiniteValuesStayInTheirRows) {
  for (double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Problem p({.M = 20, .N = 30, .K = 40, .transpose_b = true}, 1);
    p.a.put(7, 3, bad);
    p.run();
    for (int64_t m = 0; m < 20; ++m) {
      for (int64_t n = 0; n < 30; ++n) EXPECT_EQ(std::isfinite(p.c_out.get(m, n)), m != 7);
    }
  }
}

// c is only written unless it accumulates: what it held before has no part.
TEST(Matmul, OverwriteIgnoresOldResult) {
  for (int64_t M : {2, 40}) {
    Problem p({.M = M, .N = 30, .K = 300, .transpose_b = true}, 1);
    for (int64_t n = 0; n < 30; ++n) p.c_out.put(0, n, std::numeric_limits<double>::quiet_NaN());
    p.run();
    for (double x : p.c_out.values()) EXPECT_TRUE(std::isfinite(x));
  }
}

}  // namespace
}  // namespace loam::testing
