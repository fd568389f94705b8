#include "loam/base/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace loam {
namespace {

using Block = std::array<uint32_t, 4>;

// philox4x32-10 lines of Random123's kat_vectors.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamsAreKeyedBySeedAndSite) {
  const PhiloxStream stream{0xa4093822u | uint64_t{0x299f31d0} << 32, 0x13198a2eu | uint64_t{0x03707344} << 32};
  const uint64_t index = 0x243f6a88u | uint64_t{0x85a308d3} << 32;
  EXPECT_EQ(stream.block(index), (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(stream.bits(6), stream.block(1)[2]);
  EXPECT_NE((PhiloxStream{1, 0}.bits(0)), (PhiloxStream{0, 1}.bits(0)));
}

// Sample moments of n draws, within six standard errors of the distribution's.
TEST(Philox, MomentsOfUniformAndNormal) {
  const PhiloxStream stream{42, 7};
  const int n = 200'000;
  double uniform = 0, normal = 0, square = 0, fourth = 0;
  for (int i = 0; i < n; ++i) {
    const float u = stream.uniform(i);
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform += u;
    const double z = stream.normal(i);
    ASSERT_TRUE(std::isfinite(z));
    normal += z;
    square += z * z;
    fourth += z * z * z * z;
  }
  const double root = std::sqrt(n);
  EXPECT_NEAR(uniform / n, 0.5, 6 * std::sqrt(1.0 / 12) / root);
  EXPECT_NEAR(normal / n, 0, 6 / root);
  EXPECT_NEAR(square / n, 1, 6 * std::sqrt(2) / root);
  EXPECT_NEAR(fourth / n, 3, 6 * std::sqrt(96) / root);
}

TEST(Philox, BelowCoversItsRangeEvenly) {
  const PhiloxStream stream{3, 4};
  std::array<int, 7> counts = {};
  for (int i = 0; i < 70'000; ++i) ++counts.at(stream.below(i, 7));
  // Chi-squared with 6 degrees of freedom: 37.3 is passed by chance once in 10^6.
  double chi_squared = 0;
  for (const int count : counts) chi_squared += (count - 10'000.0) * (count - 10'000.0) / 10'000.0;
  EXPECT_LT(chi_squared, 37.3);
  EXPECT_EQ(stream.below(0, 1), 0u);
}

}  // namespace
}  // namespace loam
