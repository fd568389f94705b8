// Attention as training and serving ask for it: rows at multiples of 16 bytes and no greatest logit. On a GPU that has
// them, these calls take kernels of their own (loam/kernels/cuda/attention_hopper.h).
#include "tests/kernels/attention_problem.h"

namespace loam::testing {
namespace {

constexpr DType kNarrow[] = {DType::bf16, DType::f16};

Case aligned(Case c) {
  c.aligned = true;
  c.max_logit = false;
  return c;
}
void expect_all_match(const Case& c, uint64_t seed) {
  for (const DType dtype : kNarrow) expect_matches(aligned(c), dtype, seed);
}

// Around the tiles' sizes, of 64, 128 and 192 queries and 128 keys.
TEST(AlignedAttention, LengthsMatchReference) {
  for (const int64_t D : {64, 128}) {
    for (const int64_t T : {1, 7, 63, 64, 65, 127, 128, 129, 191, 193, 260}) {
      expect_all_match({.B = 1, .T = T, .S = T, .H = 2, .K = 1, .D = D}, 2000);
    }
  }
  expect_all_match({.B = 1, .T = 2100, .S = 2100, .H = 1, .K = 1, .D = 64}, 2001);
}
TEST(AlignedAttention, CachedKeysMatchReference) {
  for (const int64_t D : {64, 128}) {
    for (const int64_t T : {1, 40, 130}) {
      for (const bool causal : {false, true}) {
        expect_all_match({.B = 1, .T = T, .S = 300, .H = 2, .K = 2, .D = D, .causal = causal}, 2010);
        expect_all_match({.B = 2, .T = T, .S = 300, .H = 2, .K = 1, .D = D, .causal = causal, .key_count = {300, 141}},
                         2011);
      }
    }
  }
}
TEST(AlignedAttention, WidthsMatchReference) {
  for (const int64_t D : {8, 16, 40, 72, 80, 96, 120, 136, 256}) {
    expect_all_match({.B = 1, .T = 150, .S = 150, .H = 2, .K = 1, .D = D}, 2020);
  }
}
TEST(AlignedAttention, HeadGroupsMatchReference) {
  for (const int64_t D : {64, 128}) {
    for (const auto& [H, K] : {std::pair<int64_t, int64_t>{4, 4}, {4, 2}, {6, 2}, {5, 1}}) {
      expect_all_match({.B = 2, .T = 140, .S = 140, .H = H, .K = K, .D = D}, 2030);
    }
  }
}
TEST(AlignedAttention, MasksAndLogitsMatchReference) {
  for (const int64_t D : {64, 128}) {
    const Case c{.B = 1, .T = 400, .S = 400, .H = 2, .K = 1, .D = D};
    for (const int64_t window : {1, 5, 100, 128, 300}) {
      Case windowed = c;
      windowed.window = window;
      expect_all_match(windowed, 2040);
      windowed.causal = false;
      expect_all_match(windowed, 2041);
    }
    Case packed = c;
    packed.first_key = documents({1, 130, 3, 64, 128}, 400);
    expect_all_match(packed, 2042);
    packed.window = 50;
    expect_all_match(packed, 2043);
    Case capped = c;
    capped.softcap = 3;
    expect_all_match(capped, 2044);
  }
}
TEST(AlignedAttention, QueriesWithoutKeysMatchReference) {
  for (const int64_t D : {64, 128}) {
    expect_all_match({.B = 1, .T = 300, .S = 140, .H = 2, .K = 1, .D = D}, 2050);
    expect_all_match({.B = 2, .T = 150, .S = 150, .H = 2, .K = 2, .D = D, .key_count = {0, 20}}, 2051);
    expect_all_match({.B = 1, .T = 3, .S = 150, .H = 1, .K = 1, .D = D, .first_key = {0, 150, 150}}, 2052);
  }
}
// The kernels of the other levels, on the same calls.
TEST(AlignedAttention, LevelsMatchReference) {
  for (const Numerics level : {Numerics::deterministic, Numerics::exact}) {
    for (const int64_t D : {64, 128}) {
      Case c{.B = 2, .T = 200, .S = 200, .H = 4, .K = 2, .D = D};
      c.numerics = level;
      expect_all_match(c, 2060);
    }
  }
}
// Gradients are added to what is there.
TEST(AlignedAttention, GradientsAccumulate) {
  for (const int64_t D : {64, 128}) {
    Problem once(aligned({.B = 1, .T = 150, .S = 150, .H = 2, .K = 1, .D = D}), DType::bf16, 2070);
    once.forward(), once.backward();
    const Values d_q = once.d_q.values(), d_kv = once.d_kv.values();
    once.backward(1, true);
    const auto expect_twice = [](const Values& actual, const Values& one) {
      double error = 0;
      for (size_t i = 0; i < one.size(); ++i) error += std::pow(actual[i] - 2 * one[i], 2);
      EXPECT_LE(std::sqrt(error), 4 * unit_roundoff(DType::bf16) * norm(one));
    };
    expect_twice(once.d_q.values(), d_q);
    expect_twice(once.d_kv.values(), d_kv);
  }
}
// Numbers that are none, in documents that a query does not see and in keys past the count, do not reach it.
TEST(AlignedAttention, WhatIsNotSeenDoesNotSpread) {
  for (const int64_t D : {64, 128}) {
    for (const double poison : {kInf, std::numeric_limits<double>::quiet_NaN()}) {
      const Case c = aligned({.B = 1,
                              .T = 300,
                              .S = 310,
                              .H = 2,
                              .K = 1,
                              .D = D,
                              .first_key = documents({100, 40}, 300),
                              .key_count = {300}});
      Problem clean(c, DType::bf16, 2080), p(c, DType::bf16, 2080);
      for (int64_t t = 100; t < 140; ++t) {
        for (int64_t i = 0; i < c.H * c.D; ++i) p.q.put(t, i, poison), p.d_out.put(t, i, poison);
      }
      for (int64_t s = 100; s < c.S; s = s == 139 ? 300 : s + 1) {
        for (int64_t i = 0; i < 2 * c.K * c.D; ++i) p.kv.put(s, i, poison);
      }
      const Reference ref = reference(clean);
      p.forward(), p.backward();
      double error = 0, error_q = 0, error_kv = 0;
      for (int64_t t = 0; t < 300; ++t) {
        if (t >= 100 && t < 140) continue;
        for (int64_t i = 0; i < c.H * c.D; ++i) {
          const auto at = static_cast<size_t>(t * c.H * c.D + i);
          error += std::pow(p.out.get(t, i) - ref.out[at], 2), error_q += std::pow(p.d_q.get(t, i) - ref.d_q[at], 2);
        }
        for (int64_t i = 0; i < 2 * c.K * c.D; ++i)
          error_kv += std::pow(p.d_kv.get(t, i) - ref.d_kv[static_cast<size_t>(t * 2 * c.K * c.D + i)], 2);
      }
      const double bound = 2 * tolerance(c, DType::bf16);
      EXPECT_LE(std::sqrt(error), bound * norm(ref.out)) << D << " " << poison;
      EXPECT_LE(std::sqrt(error_q), bound * norm(ref.size_q)) << D << " " << poison;
      EXPECT_LE(std::sqrt(error_kv), bound * norm(ref.size_kv)) << D << " " << poison;
    }
  }
}

}  // namespace
}  // namespace loam::testing
