#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

using namespace testing;  // NOLINT

struct Reference {
  Values out, d_x, d_weight, d_bias, mean, rstd;
};

// The formulas of norm.h in f64. centred: LayerNorm.
Reference reference(bool centred, const Values& x, const Values& w, const Values& b, const Values& d_y, size_t C,
                    double eps) {
  const size_t N = x.size() / C;
  Reference r{Values(x.size()), Values(x.size()), Values(C), Values(C), Values(N), Values(N)};
  for (size_t n = 0; n < N; ++n) {
    double mean = 0, var = 0, mean_g = 0, mean_gh = 0;
    if (centred) {
      for (size_t c = 0; c < C; ++c) mean += x[n * C + c] / static_cast<double>(C);
    }
    for (size_t c = 0; c < C; ++c) var += std::pow(x[n * C + c] - mean, 2) / static_cast<double>(C);
    const double rstd = 1 / std::sqrt(var + eps);
    for (size_t c = 0; c < C; ++c) {
      const double h = (x[n * C + c] - mean) * rstd, g = d_y[n * C + c] * w[c];
      r.out[n * C + c] = h * w[c] + (centred ? b[c] : 0);
      r.d_weight[c] += d_y[n * C + c] * h;
      r.d_bias[c] += d_y[n * C + c];
      if (centred) mean_g += g / static_cast<double>(C);
      mean_gh += g * h / static_cast<double>(C);
    }
    for (size_t c = 0; c < C; ++c) {
      const double h = (x[n * C + c] - mean) * rstd, g = d_y[n * C + c] * w[c];
      r.d_x[n * C + c] = rstd * (g - mean_g - h * mean_gh);
    }
    r.mean[n] = mean;
    r.rstd[n] = rstd;
  }
  return r;
}

struct Case {
  // aligned: every row begins at a multiple of 16 bytes.
  Case(DType dtype, int64_t n, int64_t c, bool aligned = false)
      : N(n),
        C(c),
        x(dtype, N, C, aligned ? 8 : 5, random_values(N * C, 1)),
        d_y(dtype, N, C, aligned ? 16 : 3, random_values(N * C, 2)),
        out(dtype, N, C, aligned ? 24 : 7),
        d_x(dtype, N, C, aligned ? 8 : 9, random_values(N * C, 3)),
        w(DType::f32, 1, C, 0, random_values(C, 4)),
        b(DType::f32, 1, C, 0, random_values(C, 5)),
        d_w(DType::f32, 1, C, 0, random_values(C, 6)),
        d_b(DType::f32, 1, C, 0, random_values(C, 7)),
        mean(DType::f32, 1, N),
        rstd(DType::f32, 1, N) {}

  void run(bool centred, const ExecContext& ctx, bool accumulate, int times) {
    const KernelTable& k = *ctx.kernels;
    if (centred) {
      k.layer_norm_fwd(ctx, {x.view(), w.row(), b.row(), 1e-5f, out.view(), mean.row(), rstd.row()});
      for (int i = 0; i < times; ++i) {
        k.layer_norm_bwd(ctx, {x.view(), w.row(), mean.row(), rstd.row(), d_y.view(), d_x.view(), accumulate, d_w.row(),
                               d_b.row(), accumulate});
      }
    } else {
      k.rms_norm_fwd(ctx, {x.view(), w.row(), 1e-5f, out.view(), rstd.row()});
      for (int i = 0; i < times; ++i) {
        k.rms_norm_bwd(ctx, {x.view(), w.row(), rstd.row(), d_y.view(), d_x.view(), accumulate, d_w.row(), accumulate});
      }
    }
  }
  bool intact() const {
    for (const Matrix* m : {&x, &d_y, &out, &d_x, &w, &b, &d_w, &d_b, &mean, &rstd}) {
      if (!m->intact()) return false;
    }
    return true;
  }

  int64_t N, C;
  Matrix x, d_y, out, d_x, w, b, d_w, d_b, mean, rstd;
};

Values plus(const Values& a, const Values& b, double times) {
  Values sum(a);
  for (size_t i = 0; i < a.size(); ++i) sum[i] += times * b[i];
  return sum;
}

void compare_with_f64(bool centred, DType dtype, int64_t N, int64_t C, bool accumulate, bool aligned = false) {
  const auto resources = cpu(2);
  Case t(dtype, N, C, aligned);
  const Reference r = reference(centred, t.x.values(), t.w.values(), t.b.values(), t.d_y.values(),
                                static_cast<size_t>(C), static_cast<double>(1e-5f));
  const int times = accumulate ? 2 : 1;
  const Values none(t.d_x.values().size()), zero(static_cast<size_t>(C));
  const Values d_x = plus(accumulate ? t.d_x.values() : none, r.d_x, times);
  const Values d_w = plus(accumulate ? t.d_w.values() : zero, r.d_weight, times);
  const Values d_b = plus(accumulate ? t.d_b.values() : zero, r.d_bias, times);
  t.run(centred, resources.context, accumulate, times);
  const std::string what = fmt::format("{} [{}, {}] {}", dtype_name(dtype), N, C, accumulate ? "added twice" : "");
  // Each element: a handful of roundings in f32, sums of C or N terms by blocks, then one rounding to the dtype per
  // store.
  const double f32 = 16 * unit_roundoff(DType::f32), stored = f32 + unit_roundoff(dtype);
  expect_close(t.out.values(), r.out, stored, what + " out");
  // One row of one element has h = +-1 or 0 and d_x = 0 up to the eps: its value is all cancellation.
  if (C > 3) expect_close(t.d_x.values(), d_x, 4 * f32 + times * unit_roundoff(dtype), what + " d_x");
  expect_close(t.d_w.values(), d_w, 4 * f32, what + " d_weight");
  if (centred) expect_close(t.d_b.values(), d_b, f32, what + " d_bias");
  if (centred) expect_close(t.mean.values(), r.mean, 4 * f32, what + " mean");
  expect_close(t.rstd.values(), r.rstd, f32, what + " rstd");
  EXPECT_TRUE(t.intact()) << what;
}

TEST(NormKernel, MatchesF64) {
  for_each_target([] {
    for (const bool centred : {false, true}) {
      for (const DType dtype : kFloats) {
        for (const int64_t C : kSizes) {
          // A centred row of one element is 0 everywhere; a relative comparison has nothing to hold on to.
          if (centred && C == 1) continue;
          for (const int64_t N : {1, 3, 33}) {
            for (const bool accumulate : {false, true}) compare_with_f64(centred, dtype, N, C, accumulate);
          }
        }
      }
    }
  });
}

// Rows of whole 16-byte packs and others: such as a warp holds, a block holds and nobody holds; and more rows than a
// GPU has teams of threads.
TEST(NormKernel, EveryWidthMatchesF64) {
  for (const bool centred : {false, true}) {
    for (const DType dtype : kFloats) {
      for (const int64_t C : {8, 768, 1024, 1032, 4096, 8200}) compare_with_f64(centred, dtype, 5, C, true, true);
      for (const int64_t C : {300, 1100}) compare_with_f64(centred, dtype, 5, C, true);
      compare_with_f64(centred, dtype, 5000, 16, true, true);
      compare_with_f64(centred, dtype, 600, 1032, true, true);
    }
  }
}

TEST(NormKernel, SameBitsForAnyNumberOfThreads) {
  for (const bool centred : {false, true}) {
    Case one(DType::f32, 1100, 65), three(DType::f32, 1100, 65);
    const auto a = cpu(1), b = cpu(3);
    one.run(centred, a.context, true, 1);
    three.run(centred, b.context, true, 1);
    EXPECT_EQ(one.out.memory(), three.out.memory());
    EXPECT_EQ(one.d_x.memory(), three.d_x.memory());
    EXPECT_EQ(one.d_w.memory(), three.d_w.memory());
    EXPECT_EQ(one.d_b.memory(), three.d_b.memory());
  }
}

TEST(NormKernel, NanStaysInItsRow) {
  for_each_target([] {
    for (const bool centred : {false, true}) {
      for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
        Case t(DType::f32, 3, 17);
        t.x.put(1, 16, bad);
        t.run(centred, cpu().context, false, 1);
        for (int64_t c = 0; c < 17; ++c) {
          EXPECT_TRUE(std::isfinite(t.out.get(0, c)) && std::isfinite(t.out.get(2, c)));
          EXPECT_TRUE(std::isfinite(t.d_x.get(0, c)) && std::isfinite(t.d_x.get(2, c)));
        }
        EXPECT_TRUE(std::isnan(t.out.get(1, 16)));
        EXPECT_TRUE(std::isnan(t.d_w.get(0, 16)));
      }
    }
  });
}

TEST(NormKernel, LargeMeanKeepsItsVariance) {
  // Values 10000 + {0, 1, 2, 3}: their squares differ in the ninth digit, which f32 does not have.
  Case t(DType::f32, 1, 64);
  Values x(64), w(64, 1), b(64, 0);
  for (size_t c = 0; c < 64; ++c) x[c] = 10000 + static_cast<double>(c % 4);
  t.x = Matrix(DType::f32, 1, 64, 0, x);
  t.run(true, cpu().context, false, 1);
  EXPECT_NEAR(t.rstd.get(0, 0), 1 / std::sqrt(1.25 + 1e-5), 1e-6);
}

}  // namespace
}  // namespace loam
