#include "tests/kernels/attention_problem.h"

namespace loam::testing {
namespace {

TEST(Attention, LengthsMatchReference) {
  uint64_t seed = 1;
  for (int64_t T : {1, 2, 7, 31, 33, 65, 97, 130, 200}) {
    for (bool causal : {true, false}) {
      for (DType dtype : kFloats)
        expect_matches({.B = 2, .T = T, .S = T, .H = 2, .K = 2, .D = 16, .causal = causal}, dtype, seed++);
    }
  }
}

TEST(Attention, CachedKeysMatchReference) {
  uint64_t seed = 100;
  for (auto [T, S] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 2}, {1, 7}, {1, 96}, {1, 97}, {1, 300}, {2, 33}, {31, 130}, {100, 193}, {7, 3}}) {
    for (bool causal : {true, false}) {
      for (DType dtype : kFloats)
        expect_matches({.T = T, .S = S, .H = 4, .K = 2, .D = 24, .causal = causal}, dtype, seed++);
    }
  }
}

TEST(Attention, WidthsMatchReference) {
  uint64_t seed = 200;
  for (int64_t D : {8, 16, 24, 40, 64, 80, 96, 128, 192, 256}) {
    for (DType dtype : kFloats) expect_matches({.T = 101, .S = 101, .D = D}, dtype, seed++);
  }
}

TEST(Attention, HeadGroupsMatchReference) {
  uint64_t seed = 300;
  for (auto [H, K] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 1}, {4, 2}, {8, 8}, {8, 1}, {6, 3}}) {
    expect_matches({.B = 2, .T = 33, .S = 33, .H = H, .K = K, .D = 8}, DType::f32, seed++);
    for (DType dtype : kNarrow) expect_matches({.B = 1, .T = 1, .S = 150, .H = H, .K = K, .D = 32}, dtype, seed++);
  }
}

TEST(Attention, MasksMatchReference) {
  uint64_t seed = 400;
  for (int64_t T : {33, 130, 200}) {
    std::vector<int32_t> first = documents({1, 5, 96, 30}, T);
    const std::vector<int32_t> other = documents({17, 1, 1, 60}, T);
    first.insert(first.end(), other.begin(), other.end());
    const std::vector<int32_t> count = {static_cast<int32_t>(T - 10), 3};
    for (bool causal : {true, false}) {
      Case c{.B = 2, .T = T, .S = T, .H = 2, .K = 1, .D = 16, .causal = causal, .first_key = first};
      for (DType dtype : kFloats) expect_matches(c, dtype, seed++);
      c.key_count = count;
      for (DType dtype : kFloats) expect_matches(c, dtype, seed++);
      c.first_key.clear();
      expect_matches(c, DType::f32, seed++);
    }
  }
}

TEST(Attention, WindowsMatchReference) {
  uint64_t seed = 450;
  for (int64_t window : {1, 7, 96, 100, 500}) {
    for (DType dtype : kFloats) {
      expect_matches({.B = 1, .T = 200, .S = 200, .H = 2, .K = 1, .D = 16, .window = window}, dtype, seed++);
      expect_matches({.B = 2, .T = 1, .S = 130, .H = 4, .K = 2, .D = 16, .window = window}, dtype, seed++);  // decode
      expect_matches({.T = 130, .S = 130, .first_key = documents({50, 60}, 130), .window = window}, dtype, seed++);
    }
  }
}

TEST(Attention, LogitsMatchReference) {
  uint64_t seed = 470;
  for (DType dtype : kFloats) {
    for (const auto& [T, S] : std::vector<std::pair<int64_t, int64_t>>{{130, 130}, {1, 130}, {6, 101}}) {
      Case c{.B = 2, .T = T, .S = S, .H = 4, .K = 2, .D = 16};
      c.softcap = 0.7;  // of the size of the scores
      expect_matches(c, dtype, seed++);
      c.slopes = {0.25f, 0.0625f, 0.01f, 0};
      expect_matches(c, dtype, seed++);
      c.softcap = 0;
      expect_matches(c, dtype, seed++);
      c.window = 40;
      expect_matches(c, dtype, seed++);
    }
  }
}

TEST(Attention, DropoutMatchesReference) {
  uint64_t seed = 490;
  for (DType dtype : kFloats) {
    Case c{.B = 2, .T = 130, .S = 130, .H = 4, .K = 2, .D = 16, .dropout = 0.3};
    expect_matches(c, dtype, seed++);
    c.softcap = 0.7;
    c.window = 33;
    c.dropout = 0.5;
    expect_matches(c, dtype, seed++);
  }
}

// Every class of head dims, with sizes that are no multiple of a tile, rows that can be read 16 bytes at a time, and
// the options that change how a tile is computed.
TEST(Attention, AlignedRowsMatchReference) {
  uint64_t seed = 1500;
  for (DType dtype : kFloats) {
    for (int64_t D : {24, 64, 80, 128, 136, 256}) {
      const Case plain{.B = 1, .T = 130, .S = 170, .H = 3, .K = 1, .D = D, .aligned = true};
      expect_matches(plain, dtype, seed++);
      Case c = plain;
      c.causal = false;
      expect_matches(c, dtype, seed++);
      c = plain;
      c.B = 2, c.H = 1, c.T = c.S = 200;
      c.first_key = documents({70, 59, 1}, c.T);
      const std::vector<int32_t> other = documents({129}, c.T);
      c.first_key.insert(c.first_key.end(), other.begin(), other.end());
      expect_matches(c, dtype, seed++);
      c = plain;
      c.slopes = {0.25f, 0.0625f, 0.01f};
      c.window = 40;
      expect_matches(c, dtype, seed++);
      c = plain;
      c.softcap = 0.7;
      c.dropout = 0.3;
      c.T = 70, c.S = 135;
      c.key_count = {130};
      expect_matches(c, dtype, seed++);
    }
  }
}

// How rows lie in memory changes no bit (on a GPU from level deterministic on).
TEST(Attention, AlignmentDoesNotChangeBits) {
  for (DType dtype : kFloats) {
    for (int64_t D : {64, 128, 256}) {
      Case apart{.B = 2, .T = 70, .S = 140, .H = 4, .K = 2, .D = D, .window = 50};
      if (on_cuda()) apart.numerics = Numerics::deterministic;
      Case together = apart;
      together.aligned = true;
      Problem one(apart, dtype, 1600), other(together, dtype, 1600);
      one.forward(), one.backward();
      other.forward(), other.backward();
      EXPECT_EQ(one.out.values(), other.out.values());
      EXPECT_EQ(one.lse.values(), other.lse.values());
      EXPECT_EQ(one.d_q.values(), other.d_q.values());
      EXPECT_EQ(one.d_kv.values(), other.d_kv.values());
    }
  }
}

TEST(Attention, EveryInstructionSetMatchesReference) {
  for_each_target([] {
    expect_matches({.B = 1, .T = 130, .S = 130, .H = 2, .K = 1, .D = 40, .first_key = documents({50}, 130)}, DType::f32,
                   500);
    for (DType dtype : kNarrow) expect_matches({.B = 1, .T = 35, .S = 67, .H = 2, .K = 2, .D = 72}, dtype, 501);
    expect_matches({.B = 1,
                    .T = 101,
                    .S = 101,
                    .H = 2,
                    .K = 1,
                    .D = 24,
                    .window = 60,
                    .softcap = 2,
                    .slopes = {0.5f, 0.1f},
                    .dropout = 0.2},
                   DType::f32, 502);
  });
}

// The gradient of sum(out * d_out) by central differences of the f64 reference's forward.
TEST(Attention, BackwardMatchesFiniteDifference) {
  const Case c{.B = 1, .T = 5, .S = 7, .H = 2, .K = 1, .D = 8, .first_key = {0, 0, 3, 3, 5}};
  Problem p(c, DType::f32, 600);
  p.forward();
  p.backward();
  const Values weights = p.d_out.values();
  const auto loss = [&](const Problem& at) {
    const Values out = reference(at).out;
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
    return sum;
  };
  const auto differences = [&](Matrix Problem::*input, int64_t rows, int64_t cols) {
    Values gradient;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t col = 0; col < cols; ++col) {
        Problem up = p, down = p;
        const double x = (p.*input).get(r, col), step = 0x1p-10;
        (up.*input).put(r, col, x + step);
        (down.*input).put(r, col, x - step);
        gradient.push_back((loss(up) - loss(down)) / ((up.*input).get(r, col) - (down.*input).get(r, col)));
      }
    }
    return gradient;
  };
  // Truncation is of order step^2 = 1e-6.
  expect_close(p.d_q.values(), differences(&Problem::q, c.T, c.H * c.D), 1e-5, "d_q");
  expect_close(p.d_kv.values(), differences(&Problem::kv, c.S, 2 * c.K * c.D), 1e-5, "d_k, d_v");
}

TEST(Attention, GradientsAccumulate) {
  for (int64_t D : {16, 128, 256}) {
    for (DType dtype : kFloats) {
      Problem p({.B = 1, .T = 40, .S = 50, .H = 2, .K = 1, .D = D}, dtype, 700);
      p.forward();
      p.backward();
      Values twice_q = p.d_q.values(), twice_kv = p.d_kv.values();
      for (double& x : twice_q) x *= 2;
      for (double& x : twice_kv) x *= 2;
      p.backward(1, true);
      // The sum is rounded once, from the gradient before its own rounding.
      const double bound = dtype == DType::f32 ? 0 : 2 * unit_roundoff(dtype);
      expect_close(p.d_q.values(), twice_q, bound, "d_q");
      expect_close(p.d_kv.values(), twice_kv, bound, "d_k, d_v");
    }
  }
}

TEST(Attention, ThreadsDoNotChangeBits) {
  for (DType dtype : kFloats) {
    const Case c{.B = 2, .T = 130, .S = 140, .H = 4, .K = 2, .D = 24, .first_key = {}, .key_count = {140, 100}};
    Problem one(c, dtype, 800);
    one.forward(1), one.backward(1);
    for (int threads : {3, 8}) {  // fewer than the four heads, and so many that heads are cut
      Problem many(c, dtype, 800);
      many.forward(threads), many.backward(threads);
      EXPECT_EQ(one.out.memory(), many.out.memory());
      EXPECT_EQ(one.lse.memory(), many.lse.memory());
      EXPECT_EQ(one.d_q.memory(), many.d_q.memory());
      EXPECT_EQ(one.d_kv.memory(), many.d_kv.memory());
    }
  }
}

// Decoding one position meets the same tiles as the full sequence.
TEST(Attention, DecodeEqualsPrefillBitForBit) {
  for_each_target([] {
    const int64_t S = 210;
    for (DType dtype : kFloats) {
      for (int64_t D : {40, 64}) {
        const Case full{.B = 1, .T = S, .S = S, .H = 4, .K = 2, .D = D};
        Problem prefill(full, dtype, 900);
        prefill.forward();
        for (int64_t length : {8, 95, 96, 97, 210}) {
          for (int64_t T : {1, 2, 4, 5, 8}) {
            Case c = full;
            c.T = T, c.S = length;
            Problem decode(c, dtype, 901);
            for (int64_t i = 0; i < full.H * D; ++i) {
              for (int64_t t = 0; t < T; ++t) decode.q.put(t, i, prefill.q.get(length - T + t, i));
            }
            for (int64_t s = 0; s < length; ++s) {
              for (int64_t i = 0; i < 2 * full.K * D; ++i) decode.kv.put(s, i, prefill.kv.get(s, i));
            }
            decode.forward(2);
            EXPECT_TRUE(decode.intact());
            for (int64_t t = 0; t < T; ++t) {
              for (int64_t i = 0; i < full.H * D; ++i) {
                ASSERT_EQ(decode.out.get(t, i), prefill.out.get(length - T + t, i)) << length << " " << T << " " << t;
              }
            }
          }
        }
      }
    }
  });
}

// A query that sees no key: output 0, lse -inf, zero gradients, and nothing spreads.
TEST(Attention, FullyMaskedRowsAreZero) {
  for (const Case& c :
       {Case{.B = 1, .T = 9, .S = 4, .H = 2, .K = 1, .D = 16},                      // first five rows precede all keys
        Case{.B = 2, .T = 4, .S = 4, .H = 2, .K = 2, .D = 8, .key_count = {0, 2}},  // no keys at all
        Case{.B = 1, .T = 3, .S = 5, .H = 1, .K = 1, .D = 8, .first_key = {0, 9, 9}},  // padding rows
        Case{.B = 1, .T = 130, .S = 33, .H = 2, .K = 1, .D = 16, .window = 7},         // whole tiles without a key
        Case{.B = 2, .T = 1, .S = 300, .H = 4, .K = 2, .D = 16, .key_count = {0, 1}},  // decoding
        Case{.B = 1, .T = 1, .S = 200, .H = 2, .K = 1, .D = 8, .first_key = {200}},
        Case{.B = 2, .T = 6, .S = 6, .H = 2, .K = 1, .D = 8, .causal = false, .key_count = {0, 6}, .dropout = 0.3},
        Case{.B = 1, .T = 9, .S = 4, .H = 2, .K = 1, .D = 16, .softcap = 0.7, .slopes = {0.25f, 0.5f}}}) {
    for (DType dtype : kFloats) {
      SCOPED_TRACE(c.name());
      for_each_target([&] { expect_matches(c, dtype, 1000); });
      Problem p(c, dtype, 1000);
      p.forward();
      p.backward();
      for (int64_t b = 0; b < c.B; ++b) {
        for (int64_t t = 0; t < c.T; ++t) {
          bool any = false;
          for (int64_t s = 0; s < c.S; ++s) any = any || c.sees(b, t, s);
          for (int64_t i = 0; !any && i < c.H * c.D; ++i) {
            EXPECT_EQ(p.out.get(b * c.T + t, i), 0);
            EXPECT_EQ(p.d_q.get(b * c.T + t, i), 0);
          }
        }
      }
      for (double x : p.d_kv.values()) EXPECT_TRUE(std::isfinite(x));
    }
  }
}

// Packed documents: whatever stands in one, NaN and infinities too, the others' results keep their bits.
TEST(Attention, DocumentsDoNotLeak) {
  const int64_t T = 230;
  for (int64_t length : {1, 95, 96, 97, 130}) {
    for (double poison : {3.0, kInf, std::numeric_limits<double>::quiet_NaN()}) {
      for (DType dtype : kFloats) {
        const int64_t D = length == 96 ? 128 : length == 97 ? 256 : 24;
        const Case c{.B = 1, .T = T, .S = T, .H = 2, .K = 1, .D = D, .first_key = documents({length, 40}, T)};
        Problem clean(c, dtype, 1100), changed(c, dtype, 1100);
        for (int64_t t = length; t < length + 40; ++t) {  // the middle document
          for (int64_t i = 0; i < c.H * c.D; ++i) changed.q.put(t, i, poison), changed.d_out.put(t, i, poison);
          for (int64_t i = 0; i < 2 * c.K * c.D; ++i) changed.kv.put(t, i, poison);
        }
        clean.forward(), clean.backward();
        changed.forward(), changed.backward();
        for (int64_t t = 0; t < T; ++t) {
          if (t >= length && t < length + 40) continue;
          for (int64_t i = 0; i < c.H * c.D; ++i) {
            ASSERT_EQ(clean.out.get(t, i), changed.out.get(t, i)) << length << " " << poison << " " << t;
            ASSERT_EQ(clean.d_q.get(t, i), changed.d_q.get(t, i)) << length << " " << poison << " " << t;
          }
          for (int64_t i = 0; i < 2 * c.K * c.D; ++i) {
            ASSERT_EQ(clean.d_kv.get(t, i), changed.d_kv.get(t, i)) << length << " " << poison << " " << t;
          }
        }
      }
    }
  }
}

// Keys past key_count may hold anything.
TEST(Attention, UnusedKeysAreNotRead) {
  for (int64_t T : {2, 9}) {
    const Case c{.B = 1, .T = T, .S = 120, .H = 2, .K = 1, .D = 16, .causal = false, .key_count = {50}};
    Problem clean(c, DType::f32, 1200), changed(c, DType::f32, 1200);
    for (int64_t s = 50; s < c.S; ++s) {
      for (int64_t i = 0; i < 2 * c.K * c.D; ++i) changed.kv.put(s, i, std::numeric_limits<double>::quiet_NaN());
    }
    clean.forward(), clean.backward();
    changed.forward(), changed.backward();
    EXPECT_EQ(clean.out.memory(), changed.out.memory());
    EXPECT_EQ(clean.d_q.memory(), changed.d_q.memory());
    EXPECT_EQ(clean.d_kv.memory(), changed.d_kv.memory());
  }
}

// Scores of several thousand: exp neither overflows nor loses the row.
TEST(Attention, LargeScoresAreSafe) {
  Problem p({.B = 1, .T = 120, .S = 120, .H = 1, .K = 1, .D = 16}, DType::f32, 1300, 60.0);
  p.forward();
  p.backward();
  for (const Values& v : {p.out.values(), p.lse.values(), p.d_q.values(), p.d_kv.values()}) {
    for (double x : v) ASSERT_TRUE(std::isfinite(x));
  }
  // Scores near 1e4 have an absolute error near 1e4 * 2^-24 * sqrt(D), which exp turns into a relative one.
  expect_close(p.out.values(), reference(p).out, 1e4 * unit_roundoff(DType::f32) * 4, "out");
}

// Gradients beyond f16 are no numbers, whatever stands beside them; keys that the row does not see keep theirs.
TEST(Attention, F16GradientsOverflow) {
  for_each_target([] {
    const Case c{.B = 1, .T = 4, .S = 4, .H = 1, .K = 1, .D = 8};
    Problem p(c, DType::f16, 1350), clean(c, DType::f16, 1350);
    for (int64_t i = 0; i < c.D; ++i) {
      p.d_out.put(2, i, 30000);
      for (int64_t s = 0; s < c.S; ++s) p.kv.put(s, c.D + i, s % 2 ? 3000 : -3000);
    }
    const Reference ref = reference(p);
    p.forward(), p.backward();
    int64_t beyond = 0;
    for (int64_t i = 0; i < c.D; ++i) {
      if (std::abs(ref.d_q[static_cast<size_t>(2 * c.D + i)]) < 65520) continue;
      ++beyond;
      EXPECT_FALSE(std::isfinite(p.d_q.get(2, i))) << i;
    }
    EXPECT_GT(beyond, 0);
    for (int64_t i = 0; i < 2 * c.D; ++i) EXPECT_TRUE(std::isfinite(p.d_kv.get(3, i))) << i;
  });
}

// A NaN that is seen must show: in a query, a key or a value, with few rows and with many, in every instruction set.
TEST(Attention, NanThatIsSeenShows) {
  for_each_target([] {
    for (int64_t T : {5, 20}) {
      for (DType dtype : kFloats) {
        for (int64_t column : {-1, 0, 8}) {  // of the query; of the key; of the value
          const Case c{.B = 1, .T = T, .S = T, .H = 1, .K = 1, .D = 8};
          Problem clean(c, dtype, 1400), p(c, dtype, 1400);
          (column < 0 ? p.q : p.kv).put(2, std::max<int64_t>(column, 0), std::numeric_limits<double>::quiet_NaN());
          clean.forward(), clean.backward();
          p.forward(), p.backward();
          for (int64_t t = 0; t < T; ++t) {
            const bool sees = column < 0 ? t == 2 : t >= 2;
            EXPECT_EQ(std::isnan(p.out.get(t, 0)), sees) << column << " " << t;
            EXPECT_EQ(std::isnan(p.lse.get(0, t)), sees && column <= 0) << column << " " << t;
            EXPECT_EQ(std::isnan(p.d_q.get(t, 0)), sees) << column << " " << t;
            if (!sees) {
              EXPECT_EQ(p.d_q.get(t, 0), clean.d_q.get(t, 0));
            }
          }
          EXPECT_TRUE(std::isnan(p.d_kv.get(1, 0)));
        }
      }
    }
  });
}

}  // namespace
}  // namespace loam::testing
