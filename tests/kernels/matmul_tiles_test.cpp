// Products on AMX tiles, emulated and by the processor.
#include <limits>

#include "loam/kernels/cpu/gemm_amx.h"
#include "tests/kernels/matmul_problem.h"

namespace loam::testing {
namespace {

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
