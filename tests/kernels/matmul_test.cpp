// Legend as in matmul.h. The reference sums in f64.
#include <gtest/gtest.h>

#include <limits>

#include "loam/kernels/cpu/gemm.h"
#include "loam/kernels/cpu/gemm_amx.h"
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

bool by_table(const ExecContext& ctx, const MatmulArgs& args) {
  ctx.kernels->matmul(ctx, args);
  return true;
}
bool by_gemm(const ExecContext& ctx, const MatmulArgs& args) {
  cpu::gemm(ctx, args);
  return true;
}
bool by_emulated_tiles(const ExecContext& ctx, const MatmulArgs& args) {
  cpu::amx_gemm(ctx, args, cpu::Tiles::emulated);
  return true;
}
bool by_amx(const ExecContext& ctx, const MatmulArgs& args) {
  cpu::amx_gemm(ctx, args);
  return true;
}

// The product by tiles: emulated everywhere, and by the processor where it has them.
std::vector<Product> by_tiles() {
  std::vector<Product> products = {by_emulated_tiles};
  if (cpu::has_amx()) products.push_back(by_amx);
  return products;
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
void expect_matches(const Case& c, uint64_t seed, Product product = by_table) {
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

TEST(Matmul, OddShapesMatchReference) {
  uint64_t seed = 1;
  const int64_t sizes[] = {1, 2, 3, 5, 6, 7, 8, 9, 13, 16, 17, 31, 33};
  for (int64_t M : sizes) {
    for (int64_t N : sizes) {
      for (int64_t K : {1, 3, 8, 17, 40}) {
        const auto bits = static_cast<unsigned>(seed);
        const DType narrow = bits % 7 < 3 ? DType::f16 : DType::bf16;
        expect_matches({.M = M,
                        .N = N,
                        .K = K,
                        .transpose_a = (bits & 1) != 0,
                        .transpose_b = (bits & 2) != 0,
                        .dtype = bits & 4 ? narrow : DType::f32,
                        .c_dtype = (bits & 12) == 12 ? narrow : DType::f32,
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
        for (const auto [operand, result] : kTypes) {
          expect_matches({.M = M,
                          .N = N,
                          .K = K,
                          .transpose_a = ta,
                          .transpose_b = tb,
                          .dtype = operand,
                          .c_dtype = result,
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
      for (const auto [operand, result] : kTypes) {
        expect_matches({.M = M,
                        .N = N,
                        .K = K,
                        .transpose_b = true,
                        .dtype = operand,
                        .c_dtype = result,
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

// Level exact has a product of its own: aligned and odd strides over the edges of its tiles, of shallow and deep K.
TEST(Matmul, ExactMatchesReference) {
  uint64_t seed = 6500;
  for (auto [M, N, K] :
       std::vector<std::array<int64_t, 3>>{{64, 64, 64}, {130, 72, 200}, {65, 150, 33}, {3, 129, 500}}) {
    for (int options = 0; options < 16; ++options) {
      for (const auto [operand, result] : kTypes) {
        expect_matches({.M = M,
                        .N = N,
                        .K = K,
                        .transpose_a = (options & 1) != 0,
                        .transpose_b = (options & 2) != 0,
                        .dtype = operand,
                        .c_dtype = result,
                        .bias = (options & 4) != 0,
                        .accumulate = options % 3 == 0,
                        .alpha = options % 5 == 0 ? 0.75 : 1.0,
                        .padding = options & 8 ? 8 - K % 8 : 3,
                        .numerics = Numerics::exact},
                       seed++);
      }
    }
  }
}

// A bias of f32 beside operands of 16 bits, with one rounding.
TEST(Matmul, BiasOfEitherTypeMatchesReference) {
  uint64_t seed = 6800;
  for (auto [M, N, K] : std::vector<std::array<int64_t, 3>>{{1, 64, 40}, {70, 96, 64}, {33, 51, 128}}) {
    for (DType narrow : kNarrow) {
      for (int options = 0; options < 16; ++options) {
        expect_matches({.M = M,
                        .N = N,
                        .K = K,
                        .transpose_b = true,
                        .dtype = narrow,
                        .c_dtype = options & 4 ? narrow : DType::f32,
                        .bias = true,
                        .accumulate = (options & 1) != 0,
                        .alpha = options & 2 ? 0.5 : 1,
                        .numerics = M == 33 && options % 4 == 3 ? Numerics::exact : Numerics::fast,
                        .bias_dtype = options & 8 ? narrow : DType::f32},
                       seed++);
      }
    }
  }
}

// A row stride of 0: every row of a is the same one.
TEST(Matmul, RowsMayLieOverEachOther) {
  for (Numerics level : {Numerics::fast, Numerics::exact}) {
    for (int64_t M : {3, 40}) {
      Problem p({.M = M, .N = 30, .K = 50, .transpose_b = true, .numerics = level}, 1);
      const Values expected = p.reference().first;
      const auto resources = test_resources(1, level);
      MatmulArgs args = p.args();
      args.a.strides[0] = 0;
      resources.context.kernels->matmul(resources.context, args);
      for (int64_t m = 0; m < M; ++m) {
        for (int64_t n = 0; n < 30; ++n) EXPECT_NEAR(p.c_out.get(m, n), expected[static_cast<size_t>(n)], 1e-5);
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
      expect_matches(c, seed, cpu::dnnl_matmul);
      expect_matches(c, seed, cpu::dnnl_matmul);  // by the primitive that was kept
      if (!cpu::dnnl_has_bf16()) continue;
      for (DType result : {DType::f32, DType::bf16}) {
        c.dtype = DType::bf16, c.c_dtype = result;
        expect_matches(c, ++seed, cpu::dnnl_matmul);
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
        for (DType dtype : kNarrow) {
          expect_matches({.M = M,
                          .N = 5,
                          .K = 0,
                          .transpose_b = tb,
                          .dtype = dtype,
                          .c_dtype = dtype,
                          .bias = true,
                          .accumulate = true,
                          .numerics = level},
                         2);
        }
        expect_matches({.M = M, .N = 0, .K = 5, .transpose_b = tb, .bias = true, .numerics = level}, 3);
      }
    }
    expect_matches({.M = 0, .N = 5, .K = 5, .numerics = level}, 4);
    expect_matches({.M = 0, .N = 5, .K = 5, .transpose_b = true, .numerics = level}, 4);
  }
}

TEST(Matmul, RunsAndThreadsGiveTheSameBits) {
  for (DType dtype : kFloats) {
    for (Numerics level : {Numerics::fast, Numerics::deterministic, Numerics::exact}) {
      for (auto [M, N] : std::vector<std::pair<int64_t, int64_t>>{{3, 300}, {150, 300}, {500, 520}}) {
        Case c{.M = M, .N = N, .K = 520, .transpose_b = true, .dtype = dtype, .c_dtype = dtype, .numerics = level};
        Problem first(c, 8000), again(c, 8000);
        first.run(), again.run();
        EXPECT_EQ(first.c_out.memory(), again.c_out.memory());
        c.threads = 2;
        Problem two(c, 8000);
        two.run();
        const bool same = first.c_out.memory() == two.c_out.memory();
        EXPECT_TRUE(same || matmul_depends_on_threads(level, dtype)) << c.name();
      }
    }
  }
  EXPECT_FALSE(matmul_depends_on_threads(Numerics::deterministic, DType::f32));
  EXPECT_FALSE(matmul_depends_on_threads(Numerics::exact, DType::bf16));
  EXPECT_FALSE(matmul_depends_on_threads(Numerics::fast, DType::f16));
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

// A sum beyond f16 is infinite in f16, and a number in f32.
TEST(Matmul, F16OverflowIsInfinity) {
  for (Numerics level : {Numerics::fast, Numerics::exact}) {
    for (int64_t M : {2, 70}) {
      for (DType result : {DType::f16, DType::f32}) {
        Case c{.M = M, .N = 64, .K = 64, .transpose_b = true, .dtype = DType::f16, .c_dtype = result};
        c.numerics = level;
        Problem p(c, 1);
        for (int64_t k = 0; k < 64; ++k) p.a.put(1, k, 200), p.b.put(3, k, 200), p.b.put(5, k, -200);
        p.run();
        EXPECT_EQ(p.c_out.get(1, 3), result == DType::f16 ? std::numeric_limits<double>::infinity() : 2560000);
        EXPECT_EQ(p.c_out.get(1, 5), result == DType::f16 ? -std::numeric_limits<double>::infinity() : -2560000);
        EXPECT_TRUE(std::isfinite(p.c_out.get(0, 0)) && std::isfinite(p.c_out.get(1, 0)));
      }
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

// Every option over shapes with whole and cut tiles.
TEST(MatmulTiles, MatchReference) {
  uint64_t seed = 10000;
  const int64_t sizes[] = {1, 15, 16, 17, 32, 33, 70};
  for (Product product : by_tiles()) {
    for (int64_t M : sizes) {
      for (int64_t N : sizes) {
        for (int64_t K : {1, 16, 31, 64, 75}) {
          const auto bits = static_cast<unsigned>(seed * 2654435761u >> 16);
          Case c{.M = M,
                 .N = N,
                 .K = K,
                 .transpose_a = (bits & 1) != 0,
                 .transpose_b = (bits & 2) != 0,
                 .bias = (bits & 4) != 0,
                 .accumulate = (bits & 8) != 0,
                 .alpha = bits & 16 ? 0.75 : 1.0,
                 .padding = static_cast<int64_t>(bits % 3),
                 .threads = bits & 32 ? 2 : 1};
          expect_matches(c, ++seed, product);
          c.dtype = DType::bf16;
          expect_matches(c, ++seed, product);
          c.c_dtype = DType::bf16;
          expect_matches(c, ++seed, product);
        }
      }
    }
  }
}

// Packed operands are cut at a depth of 512 (1536 in bf16) and at 8 MiB, 2720 rows of such a depth.
TEST(MatmulTiles, CutOperandsMatchReference) {
  uint64_t seed = 15000;
  for (Product product : by_tiles()) {
    for (auto [M, N, K, t] : std::vector<std::array<int64_t, 4>>{
             {40, 33, 1100, 0}, {40, 33, 1100, 1}, {2750, 2, 512, 1}, {3, 2750, 512, 0}, {3, 2750, 520, 1}}) {
      Case c{.M = M,
             .N = N,
             .K = K,
             .transpose_a = t == 1,
             .transpose_b = t == 0,
             .bias = true,
             .accumulate = t == 1,
             .alpha = 0.75,
             .padding = 3,
             .threads = 2};
      expect_matches(c, ++seed, product);
      c.K *= 3, c.dtype = DType::bf16, c.accumulate = t == 0;
      expect_matches(c, ++seed, product);
      c.c_dtype = DType::bf16;
      expect_matches(c, ++seed, product);
    }
  }
}

TEST(MatmulTiles, EveryInstructionSetGivesTheSameBits) {
  for (DType dtype : kTileTypes) {
    for (int options = 0; options < 4; ++options) {
      const Case c{.M = 50,
                   .N = 75,
                   .K = 70,
                   .transpose_a = (options & 1) != 0,
                   .transpose_b = (options & 2) != 0,
                   .dtype = dtype,
                   .c_dtype = dtype,
                   .bias = true};
      Problem first(c, 16000);
      first.run(by_emulated_tiles);
      for_each_target([&] {
        Problem p(c, 16000);
        p.run(by_emulated_tiles);
        EXPECT_EQ(p.c_out.memory(), first.c_out.memory()) << c.name();
      });
    }
  }
}

// A wrong description of the processor's tiles would show here. Shapes with whole and cut tiles, all depths.
TEST(MatmulTiles, EmulatedBitsAreTheProcessors) {
  if (!cpu::has_amx()) GTEST_SKIP() << "this processor has no AMX-BF16";
  for (DType dtype : kTileTypes) {
    const Case c{.M = 70, .N = 90, .K = 333, .dtype = dtype, .threads = 2};
    Problem emulated(c, 17000), amx(c, 17000);
    emulated.run(by_emulated_tiles), amx.run(by_amx);
    EXPECT_EQ(emulated.c_out.memory(), amx.c_out.memory()) << c.name();
  }
}

TEST(MatmulTiles, BitsDependNeitherOnRowsNorThreads) {
  for (Product product : by_tiles()) {
    for (DType dtype : kTileTypes) {
      Case c{.M = 130, .N = 100, .K = 300, .transpose_b = true, .dtype = dtype, .c_dtype = dtype};
      Problem one(c, 18000);
      one.run(product);
      c.threads = 3;
      Problem three(c, 18000);
      three.run(product);
      EXPECT_EQ(one.c_out.memory(), three.c_out.memory());
      c.M = 20;
      Problem few(c, 18000);
      for (int64_t n = 0; n < c.N; ++n) {
        for (int64_t k = 0; k < c.K; ++k) few.b.put(n, k, one.b.get(n, k));
      }
      few.run(product);
      for (int64_t m = 0; m < c.M; ++m) {
        for (int64_t n = 0; n < c.N; ++n) ASSERT_EQ(few.c_out.get(m, n), one.c_out.get(m, n)) << m << " " << n;
      }
    }
  }
}

// The error of each f32 element, against the most it can be. With u = 2^-24: the parts of x are at most |x|,
// 2^-8 |x| and 2^-17 |x|, so the three products left out are at most (2 * 2^-25 + 2^-34) |a b| = 1.01 u |a b|, and
// those summed at most 1.008 |a b| together. A tile's sum is 16 roundings and one more, and meets 6 ceil(K / 32) sums.
// At K = 1 a product that was forgotten is up to 128 u.
TEST(MatmulTiles, ErrorIsBelowItsBound) {
  uint64_t seed = 19000;
  for (Product product : by_tiles()) {
    for (int64_t K : {1, 2, 33, 300, 512}) {
      const Case c{.M = 64, .N = 64, .K = K};
      Problem p(c, ++seed);
      const auto [value, size] = p.reference();
      p.run(product);
      const double roundings = 1.01 * (17 + 6 * std::ceil(static_cast<double>(K) / 32)) + 1.01;
      const Values actual = p.c_out.values();
      for (size_t i = 0; i < value.size(); ++i) {
        ASSERT_LE(std::abs(actual[i] - value[i]), roundings * unit_roundoff(DType::f32) * size[i]) << K << " " << i;
      }
    }
  }
}

enum class Inputs { normal, positive, scaled, cancelling };

void fill_inputs(Problem& p, Inputs inputs) {
  const auto [M, N, K] = std::array{p.test.M, p.test.N, p.test.K};
  const auto scale = [](int64_t i) { return std::pow(10.0, static_cast<double>(i * 17 % 41 - 20)); };  // to 1e20
  for (int64_t k = 0; k < K; ++k) {
    for (int64_t m = 0; m < M; ++m) {
      if (inputs == Inputs::positive) p.a.put(m, k, std::abs(p.a.get(m, k)));
      if (inputs == Inputs::scaled) p.a.put(m, k, p.a.get(m, k) * scale(m));
      if (inputs == Inputs::cancelling && k >= K / 2) p.a.put(m, k, -p.a.get(m, k - K / 2));
    }
    for (int64_t n = 0; n < N; ++n) {
      if (inputs == Inputs::positive) p.b.put(k, n, std::abs(p.b.get(k, n)));
      if (inputs == Inputs::scaled) p.b.put(k, n, p.b.get(k, n) * std::pow(10.0, static_cast<double>(n % 20 - 5)));
      if (inputs == Inputs::cancelling && k >= K / 2) p.b.put(k, n, p.b.get(k - K / 2, n) * (1 + 0x1p-20));
    }
  }
}

// The root of the mean square of |error| / sum of |a b|, in units of 2^-24.
double relative_error(const Case& c, uint64_t seed, Inputs inputs, Product product) {
  Problem p(c, seed);
  fill_inputs(p, inputs);
  const auto [value, size] = p.reference();
  p.run(product);
  const Values actual = p.c_out.values();
  double sum = 0;
  for (size_t i = 0; i < value.size(); ++i) {
    const double error = (actual[i] - value[i]) / (size[i] * unit_roundoff(DType::f32));
    sum += error * error;
  }
  return std::sqrt(sum / static_cast<double>(value.size()));
}

TEST(MatmulTiles, ErrorIsThatOfThePlainProduct) {
  uint64_t seed = 20000;
  for (Product product : by_tiles()) {
    for (Inputs inputs : {Inputs::normal, Inputs::positive, Inputs::scaled, Inputs::cancelling}) {
      for (int64_t K : {2, 32, 200, 1000}) {
        const Case c{.M = 40, .N = 40, .K = K};
        const double plain = relative_error(c, ++seed, inputs, by_gemm);
        const double tiles = relative_error(c, seed, inputs, product);
        EXPECT_LE(tiles, 2 * plain) << "inputs " << static_cast<int>(inputs) << " K " << K;
      }
    }
  }
}

// Parts under 2^-126 are lost: an absolute error of 2^-126 in each element of an operand.
TEST(MatmulTiles, TinyValuesCountUpToTheSmallestNormal) {
  for (Product product : by_tiles()) {
    Problem p({.M = 33, .N = 20, .K = 40}, 21000);
    for (int64_t m = 0; m < 33; ++m) {
      for (int64_t k = 0; k < 40; ++k)
        p.a.put(m, k, p.a.get(m, k) * std::pow(10.0, -30.0 - static_cast<double>(m) / 4));
    }
    const auto [value, size] = p.reference();
    p.run(product);
    for (int64_t m = 0; m < 33; ++m) {
      for (int64_t n = 0; n < 20; ++n) {
        const auto i = static_cast<size_t>(m * 20 + n);
        double lost = 0;
        for (int64_t k = 0; k < 40; ++k) lost += 0x1p-126 * (std::abs(p.b.get(k, n)) + 6);
        ASSERT_LE(std::abs(p.c_out.get(m, n) - value[i]), 32 * unit_roundoff(DType::f32) * size[i] + lost) << m;
      }
    }
  }
}

// A value without finite parts: the result is the plain product's, to the bit where that computes all of K.
TEST(MatmulTiles, ValuesWithoutFinitePartsTakeThePlainProduct) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double largest = std::numeric_limits<float>::max(), nan = std::numeric_limits<double>::quiet_NaN();
  for (Product product : by_tiles()) {
    for (double bad : {infinity, -infinity, nan, -nan, largest, -largest}) {
      for (bool in_a : {false, true}) {
        for (int64_t K : {40, 1100}) {
          const Case c{.M = 40, .N = 50, .K = K, .bias = true, .accumulate = true, .padding = 1, .threads = 2};
          Problem p(c, 22000), plain(c, 22000);
          for (Problem* each : {&p, &plain}) {
            Matrix& operand = in_a ? each->a : each->b;
            in_a ? operand.put(17, K - 1, bad) : operand.put(K - 1, 18, bad);
          }
          p.run(product), plain.run(by_gemm);
          EXPECT_TRUE(p.c_out.intact());
          EXPECT_TRUE(K > 512 || p.c_out.memory() == plain.c_out.memory());
          for (int64_t m = 0; m < c.M; ++m) {
            for (int64_t n = 0; n < c.N; ++n) {
              const double actual = p.c_out.get(m, n), expected = plain.c_out.get(m, n);
              ASSERT_EQ(std::isnan(actual), std::isnan(expected));
              const double tolerance = std::isfinite(expected) ? 1e-3 + 1e-5 * std::abs(expected) : 0;
              ASSERT_TRUE(actual == expected || std::isnan(expected) || std::abs(actual - expected) <= tolerance);
            }
          }
        }
      }
    }
  }
}

// The largest value that the parts can hold.
TEST(MatmulTiles, LargeValuesWithFiniteParts) {
  for (Product product : by_tiles()) {
    Problem p({.M = 20, .N = 20, .K = 20}, 23000);
    const double large = std::bit_cast<float>(0x7F7F7FFF);
    for (int64_t m = 0; m < 20; ++m) {
      for (int64_t k = 0; k < 20; ++k) p.a.put(m, k, k == m ? large : 0), p.b.put(m, k, k == m ? 0.5 : 0);
    }
    p.run(product);
    for (int64_t m = 0; m < 20; ++m) {
      for (int64_t n = 0; n < 20; ++n) ASSERT_EQ(p.c_out.get(m, n), m == n ? large / 2 : 0);
    }
  }
}

}  // namespace
}  // namespace loam::testing
