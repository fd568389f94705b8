#include <limits>

#include "loam/kernels/cpu/matmul_dnnl.h"
#include "tests/kernels/matmul_problem.h"

namespace loam::testing {
namespace {

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

// TF32 keeps 10 bits of mantissa: factors that have no more are multiplied exactly, others are off by at most 2^-10 (an
// ulp) each, and by more than f32 is.
TEST(Matmul, Tf32RoundsFactorsAndNothingElse) {
  if (!on_cuda()) GTEST_SKIP() << "LOAM_TEST_DEVICE=cuda runs it";
  auto resources = test_resources();
  resources.context.tf32 = true;
  for (const bool t : {false, true}) {
    Problem p({.M = 256, .N = 128, .K = 512, .transpose_a = t, .transpose_b = !t}, 5);
    const auto [expected, size] = p.reference();
    resources.context.kernels->matmul(resources.context, p.args());
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto column = static_cast<int64_t>(i % 128), row = static_cast<int64_t>(i / 128);
      worst = std::max(worst, std::abs(p.c_out.get(row, column) - expected[i]) / size[i]);
    }
    EXPECT_LT(worst, 2 * 0x1p-10 + 512 * unit_roundoff(DType::f32));
    EXPECT_GT(worst, 16 * unit_roundoff(DType::f32)) << "no TF32";

    for (Matrix* m : {&p.a, &p.b}) {
      const Values values = m->values();
      const int64_t columns = m->view().dim(1);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        m->put(at / columns, at % columns, std::round(values[i] * 16));  // whole numbers: sums below 2^24 are exact
      }
    }
    const Values whole = p.reference().first;
    resources.context.kernels->matmul(resources.context, p.args());
    EXPECT_EQ(p.c_out.values(), whole);
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

}  // namespace
}  // namespace loam::testing
