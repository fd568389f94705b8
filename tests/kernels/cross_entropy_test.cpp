#include <tuple>

#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

using namespace testing;  // NOLINT

struct RowTruth {
  double max = -INFINITY, sum = 0, dot = 0, lse = 0;
};

RowTruth truth(const Matrix& logits, int64_t n, int64_t V) {
  RowTruth t;
  for (int64_t c = 0; c < V; ++c) t.max = std::max(t.max, logits.get(n, c));
  for (int64_t c = 0; c < V; ++c) {
    const double l = logits.get(n, c) - t.max, e = std::exp(l);
    t.sum += e;
    if (e > 0) t.dot += e * l;
  }
  t.lse = t.max + std::log(t.sum);
  return t;
}

std::vector<int32_t> targets_with_gaps(int64_t N, int64_t V) {
  auto targets = random_ids(N, V, 3);
  for (size_t n = 1; n < targets.size(); n += 3) targets[n] = -1;
  targets[0] = static_cast<int32_t>(V - 1);
  return targets;
}

constexpr int64_t kVocabularies[] = {1, 3, 17, 257, 2047, 2049, 5003, 20011};

TEST(CrossEntropyKernel, LossAndGradientMatchF64) {
  for_each_target([] {
    for (const DType dtype : kFloats) {
      for (const int64_t V : kVocabularies) {
        const int64_t N = 7;
        Matrix logits(dtype, N, V, 3, random_values(N * V, 1, 4)), loss(DType::f32, 1, N);
        const Matrix given = logits;
        auto targets = targets_with_gaps(N, V);
        Values losses, gradient;
        const double scale = 0.125;
        for (int64_t n = 0; n < N; ++n) {
          const RowTruth t = truth(given, n, V);
          const int32_t target = targets[static_cast<size_t>(n)];
          losses.push_back(target < 0 ? 0 : t.lse - given.get(n, target));
          for (int64_t c = 0; c < V; ++c) {
            gradient.push_back(target < 0 ? 0 : scale * (std::exp(given.get(n, c) - t.lse) - (c == target)));
          }
        }
        const auto r = cpu(2);
        r.context.kernels->cross_entropy_rows(r.context,
                                              {logits.view(), ids_view(targets), 0.125f, false, 0, 0, loss.row(), {}});
        EXPECT_EQ(logits.memory(), given.memory()) << "logits change only when a gradient is asked for";
        r.context.kernels->cross_entropy_rows(r.context,
                                              {logits.view(), ids_view(targets), 0.125f, true, 0, 0, loss.row(), {}});
        const std::string what = fmt::format("{} V {}", dtype_name(dtype), V);
        const double f32 = unit_roundoff(DType::f32);
        if (V > 1) expect_close(loss.values(), losses, 4 * f32, what + " loss");
        // exp turns the absolute rounding of its argument, of size |l - lse| <= 32, into a relative error.
        if (V > 1) expect_close(logits.values(), gradient, 32 * f32 + unit_roundoff(dtype), what + " gradient");
        EXPECT_TRUE(logits.intact() && loss.intact());
      }
    }
  });
}

TEST(CrossEntropyKernel, StatisticsOfAnyChunks) {
  for_each_target([] {
    const auto r = cpu(2);
    const int64_t N = 5, V = 5003;
    for (const DType dtype : kFloats) {
      Matrix logits(dtype, N, V, 1, random_values(N * V, 1, 4));
      for (int64_t c = 0; c < 100; ++c) logits.put(1, c, -INFINITY);   // a chunk with nothing in it
      for (int64_t c = 4900; c < V; ++c) logits.put(2, c, -INFINITY);  // padding at the end
      logits.put(3, 4999, 200);                                        // the maximum comes last, far above
      auto targets = targets_with_gaps(N, V);
      for (const int64_t chunk : {V, int64_t{100}, int64_t{2500}}) {
        Matrix max(DType::f32, 1, N), sum = max, target = max, dot = max;
        for (int64_t begin = 0; begin < V; begin += chunk) {
          View part = logits.view();
          part.data = static_cast<std::byte*>(part.data) + begin * dtype_size(dtype);
          part.shape[1] = std::min(chunk, V - begin);
          r.context.kernels->logit_stats(
              r.context, {part, begin, ids_view(targets), begin == 0, max.row(), sum.row(), target.row(), dot.row()});
        }
        for (int64_t n = 0; n < N; ++n) {
          const RowTruth t = truth(logits, n, V);
          EXPECT_EQ(max.get(0, n), t.max);
          EXPECT_NEAR(sum.get(0, n) / t.sum, 1, 1e-6);
          EXPECT_NEAR(dot.get(0, n), t.dot, 2e-6 * std::abs(t.dot) + 1e-30) << "row " << n << " chunk " << chunk;
          const int32_t id = targets[static_cast<size_t>(n)];
          EXPECT_EQ(target.get(0, n), id < 0 ? 0 : logits.get(n, id));
        }
        EXPECT_TRUE(max.intact() && sum.intact() && target.intact() && dot.intact());
      }
    }
  });
}

TEST(CrossEntropyKernel, ChunkGradientMatchesF64) {
  for_each_target([] {
    const auto r = cpu(2);
    const int64_t N = 6, begin = 40;
    for (const auto& [V, dtype, with_lse, cap] :
         std::vector<std::tuple<int64_t, DType, bool, double>>{{257, DType::f32, false, 0},
                                                               {257, DType::f32, true, 0},
                                                               {257, DType::bf16, false, 0},
                                                               {257, DType::bf16, true, 0},
                                                               {257, DType::f16, true, 0},
                                                               {20011, DType::f32, true, 0},
                                                               {20011, DType::bf16, false, 0},
                                                               {20011, DType::f16, false, 0},
                                                               {257, DType::f32, true, 20},
                                                               {20011, DType::bf16, true, 20},
                                                               {20011, DType::f16, true, 20}}) {
      Matrix logits(dtype, N, V, 3, random_values(N * V, 1, 3));
      const Matrix given = logits;
      Matrix lse(DType::f32, 1, N), d_logp(DType::f32, 1, N, 0, random_values(N, 4)),
          d_lse(DType::f32, 1, N, 0, random_values(N, 5));
      const auto last = static_cast<int32_t>(begin + V - 1);
      std::vector<int32_t> targets{40, 39, last, last + 1, -1, 100};  // first, before, last, behind, none, inside
      Values expected;
      for (int64_t n = 0; n < N; ++n) {
        lse.put(0, n, truth(given, n, V).lse + 0.5);  // some probability lies in other chunks
        const int32_t target = targets[static_cast<size_t>(n)];
        const double g = target < 0 ? 0 : d_logp.get(0, n), h = with_lse ? d_lse.get(0, n) : 0;
        for (int64_t c = 0; c < V; ++c) {
          const double p = std::exp(given.get(n, c) - lse.get(0, n));
          const double slope = cap > 0 ? 1 - std::pow(given.get(n, c) / cap, 2) : 1;
          expected.push_back((g * ((c + begin == target) - p) + h * p) * slope);
        }
      }
      r.context.kernels->logit_bwd(r.context, {logits.view(), begin, ids_view(targets), lse.row(), d_logp.row(),
                                               with_lse ? d_lse.row() : View{}, static_cast<float>(cap)});
      expect_close(logits.values(), expected, 32 * unit_roundoff(DType::f32) + unit_roundoff(dtype), "gradient");
      EXPECT_TRUE(logits.intact());
    }
  });
}

TEST(CrossEntropyKernel, ZLossAndCapMatchF64) {
  for_each_target([] {
    const auto r = cpu(2);
    const int64_t N = 5;
    const double scale = 0.25, z_loss = 0.125, cap = 15;
    for (const DType dtype : kFloats) {
      for (const int64_t V : {33, 20011}) {
        Matrix logits(dtype, N, V, 5, random_values(N * V, 1, 3)), loss(DType::f32, 1, N), z_term = loss;
        const Matrix given = logits;
        auto targets = targets_with_gaps(N, V);
        Values losses, z_terms, gradient;
        for (int64_t n = 0; n < N; ++n) {
          const double lse = truth(given, n, V).lse;
          const int32_t target = targets[static_cast<size_t>(n)];
          losses.push_back(target < 0 ? 0 : lse - given.get(n, target));
          z_terms.push_back(target < 0 ? 0 : z_loss * lse * lse);
          for (int64_t c = 0; c < V; ++c) {
            const double l = given.get(n, c), p = std::exp(l - lse);
            const double d = scale * (p * (1 + 2 * z_loss * lse) - (c == target)) * (1 - l * l / (cap * cap));
            gradient.push_back(target < 0 ? 0 : d);
          }
        }
        r.context.kernels->cross_entropy_rows(
            r.context, {logits.view(), ids_view(targets), 0.25f, true, 0.125f, 15, loss.row(), z_term.row()});
        const double f32 = unit_roundoff(DType::f32);
        expect_close(loss.values(), losses, 4 * f32, "loss");
        expect_close(z_term.values(), z_terms, 4 * f32, "z_term");
        expect_close(logits.values(), gradient, 32 * f32 + unit_roundoff(dtype), "gradient");
        EXPECT_TRUE(logits.intact() && loss.intact() && z_term.intact());
      }
    }
  });
}

TEST(CrossEntropyKernel, SoftcapMatchesF64) {
  for_each_target([] {
    const auto r = cpu(2);
    const int64_t N = 3;
    for (const DType dtype : kFloats) {
      for (const int64_t V : {1, 33, 20011}) {
        Matrix logits(dtype, N, V, 3, random_values(N * V, 1, 20));
        Values expected = logits.values();
        for (double& l : expected) l = 30 * std::tanh(l / 30);
        r.context.kernels->softcap(r.context, {logits.view(), 30});
        expect_close(logits.values(), expected, 4 * unit_roundoff(DType::f32) + unit_roundoff(dtype), "logits");
        EXPECT_TRUE(logits.intact());
      }
    }
  });
}

TEST(CrossEntropyKernel, ExtremesAndNan) {
  for_each_target([] {
    const auto r = cpu();
    const int64_t V = 20;
    Values x(4 * V, 0);
    for (size_t c = 0; c < V; ++c) {
      x[c] = -INFINITY;                                        // all but the target impossible
      x[V + c] = 3e38 * (c % 2 ? 1 : -1);                      // finite and huge
      x[2 * V + c] = 1000 + static_cast<double>(c == 4) * 10;  // a small loss between large logits
    }
    x[7] = -5;
    x[3 * V + 19] = std::nan("");
    Matrix logits(DType::f32, 4, V, 0, x), loss(DType::f32, 1, 4);
    std::vector<int32_t> targets{7, 1, 4, 0};
    r.context.kernels->cross_entropy_rows(r.context, {logits.view(), ids_view(targets), 1, true, 0, 0, loss.row(), {}});
    EXPECT_EQ(loss.get(0, 0), 0);
    EXPECT_EQ(logits.get(0, 7), 0);
    EXPECT_EQ(logits.get(0, 6), 0);
    EXPECT_NEAR(loss.get(0, 1), std::log(10.0), 1e-6);
    EXPECT_NEAR(loss.get(0, 2) / std::log1p(19 * std::exp(-10.0)), 1, 1e-3);
    EXPECT_TRUE(std::isnan(loss.get(0, 3)) && std::isnan(logits.get(3, 0)));
  });
}

// A loss that was scaled too far.
TEST(CrossEntropyKernel, F16GradientsOverflowToInfinity) {
  for_each_target([] {
    auto r = cpu();
    StepState state;
    state.loss_factor = 0x1p20f;
    r.context.step = &state;
    Matrix logits(DType::f16, 1, 3, 0, {0, 1, 0}), loss(DType::f32, 1, 1);
    std::vector<int32_t> targets{0};
    r.context.kernels->cross_entropy_rows(r.context,
                                          {logits.view(), ids_view(targets), 0.5f, true, 0, 0, loss.row(), {}});
    EXPECT_EQ(logits.values(), (Values{-INFINITY, INFINITY, INFINITY}));
  });
}

TEST(CrossEntropyKernel, SameBitsForAnyNumberOfThreads) {
  const auto one = cpu(1), three = cpu(3);
  Matrix a(DType::f32, 40, 3001, 0, random_values(40 * 3001, 1, 3)), b = a, loss(DType::f32, 1, 40), loss_b = loss;
  auto targets = targets_with_gaps(40, 3001);
  one.context.kernels->cross_entropy_rows(one.context, {a.view(), ids_view(targets), 1, true, 0, 0, loss.row(), {}});
  three.context.kernels->cross_entropy_rows(three.context,
                                            {b.view(), ids_view(targets), 1, true, 0, 0, loss_b.row(), {}});
  EXPECT_EQ(a.memory(), b.memory());
  EXPECT_EQ(loss.memory(), loss_b.memory());
}

}  // namespace
}  // namespace loam
