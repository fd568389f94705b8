#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

using namespace testing;  // NOLINT

struct Case {
  DType dtype = DType::f32;
  RopeLayout layout = RopeLayout::half;
  int64_t N = 1, H = 1, D = 2, R = 2;
  bool inverse = false;
  bool aligned = false;  // every token begins at a multiple of 16 bytes
};

Values frequencies(int64_t R, double theta = 10000) {
  Values f;
  for (int64_t k = 0; k < R / 2; ++k)
    f.push_back(std::pow(theta, -2.0 * static_cast<double>(k) / static_cast<double>(R)));
  return f;
}

// [N, H, D] over rows of H * D elements.
View heads(const Matrix& m, int64_t H, int64_t D) {
  View v = m.view();
  const int64_t stride = v.strides[0];
  v.shape = {v.shape[0], H, D};
  v.strides = {stride, D, 1};
  return v;
}

Values reference(const Case& t, const Values& in, const Values& frequency, const std::vector<int32_t>& positions) {
  Values out = in;
  for (int64_t n = 0; n < t.N; ++n) {
    for (int64_t h = 0; h < t.H; ++h) {
      for (int64_t k = 0; k < t.R / 2; ++k) {
        const int64_t base = (n * t.H + h) * t.D;
        const bool half = t.layout == RopeLayout::half;
        const auto i = static_cast<size_t>(base + (half ? k : 2 * k)),
                   j = half ? i + static_cast<size_t>(t.R / 2) : i + 1;
        const double angle =
            positions[static_cast<size_t>(n)] * frequency[static_cast<size_t>(k)] * (t.inverse ? -1 : 1);
        out[i] = in[i] * std::cos(angle) - in[j] * std::sin(angle);
        out[j] = in[i] * std::sin(angle) + in[j] * std::cos(angle);
      }
    }
  }
  return out;
}

void compare_with_f64(const Case& t) {
  const auto r = cpu(2);
  Matrix in(t.dtype, t.N, t.H * t.D, t.aligned ? 8 : 6, random_values(t.N * t.H * t.D, 1));
  Matrix out(t.dtype, t.N, t.H * t.D, t.aligned ? 16 : 4), frequency(DType::f32, 1, t.R / 2, 0, frequencies(t.R));
  auto positions = random_ids(t.N, 33000, 2);
  RopeArgs args{heads(in, t.H, t.D), ids_view(positions), frequency.row(), t.layout, t.inverse, heads(out, t.H, t.D)};
  const Values expected = reference(t, in.values(), frequency.values(), positions);
  const std::string what = fmt::format("{} layout {} {} heads of {}, {} rotated", dtype_name(t.dtype),
                                       static_cast<int>(t.layout), t.H, t.D, t.R);
  const double tolerance = 8 * unit_roundoff(DType::f32) + unit_roundoff(t.dtype);
  r.context.kernels->rope(r.context, args);
  expect_close(out.values(), expected, tolerance, what);
  args.accumulate = true;
  r.context.kernels->rope(r.context, args);
  Values twice = expected;
  for (double& v : twice) v *= 2;
  expect_close(out.values(), twice, 2 * tolerance, what + " added");
  EXPECT_TRUE(out.intact()) << what;
  args.accumulate = false;
  args.out = args.in;
  r.context.kernels->rope(r.context, args);
  expect_close(in.values(), expected, tolerance, what + " in place");
  EXPECT_TRUE(in.intact()) << what;
}

TEST(RopeKernel, MatchesF64) {
  for_each_target([] {
    for (const DType dtype : kFloats) {
      for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
        for (const auto& [D, R] :
             {std::pair<int64_t, int64_t>{2, 2}, {6, 6}, {64, 64}, {24, 10}, {128, 126}, {128, 32}, {1040, 1040}}) {
          for (const bool inverse : {false, true}) {
            for (const bool aligned : {false, true}) compare_with_f64({dtype, layout, 19, 3, D, R, inverse, aligned});
          }
        }
      }
    }
  });
}

// Far out, an angle in bf16 is off by whole turns, and one in f32 by 1e-3.
TEST(RopeKernel, FarPositionsStayAccurate) {
  for_each_target([] {
    const auto r = cpu();
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
      for (const double theta : {10000.0, 500000.0}) {
        std::vector<int32_t> positions{15962, 32768, 131071, 1, 0};
        const auto N = static_cast<int64_t>(positions.size());
        Values ones;
        for (int64_t i = 0; i < N * 128; ++i) {
          const bool real = layout == RopeLayout::half ? i % 128 < 64 : i % 2 == 0;
          ones.push_back(real ? 1 : 0);  // (1, 0) turns into (cos, sin)
        }
        Matrix in(DType::f32, N, 128, 0, ones), out(DType::f32, N, 128);
        Matrix frequency(DType::f32, 1, 64, 0, frequencies(128, theta));
        r.context.kernels->rope(
            r.context, {heads(in, 1, 128), ids_view(positions), frequency.row(), layout, false, heads(out, 1, 128)});
        const size_t second = layout == RopeLayout::half ? 64 : 1;
        EXPECT_NEAR(out.get(0, 0), std::cos(15962.0), 1e-6);
        double worst = 0;
        for (int64_t n = 0; n < N; ++n) {
          for (int64_t k = 0; k < 64; ++k) {
            const double angle = positions[static_cast<size_t>(n)] * frequency.get(0, k);
            const int64_t at = layout == RopeLayout::half ? k : 2 * k;
            worst = std::max(worst, std::abs(out.get(n, at) - std::cos(angle)));
            worst = std::max(worst, std::abs(out.get(n, at + static_cast<int64_t>(second)) - std::sin(angle)));
          }
        }
        EXPECT_LT(worst, 5e-7);
      }
    }
  });
}

TEST(RopeKernel, InverseUndoesAndThreadsAgree) {
  const auto one = cpu(1), three = cpu(3);
  Matrix in(DType::f32, 100, 128, 0, random_values(12800, 1)), a(DType::f32, 100, 128), b = a, back = a;
  Matrix frequency(DType::f32, 1, 32, 0, frequencies(64));
  auto positions = random_ids(100, 5000, 3);
  const auto args = [&](const Matrix& from, const Matrix& to, bool inverse) {
    return RopeArgs{heads(from, 2, 64), ids_view(positions), frequency.row(), RopeLayout::half, inverse,
                    heads(to, 2, 64)};
  };
  one.context.kernels->rope(one.context, args(in, a, false));
  three.context.kernels->rope(three.context, args(in, b, false));
  EXPECT_EQ(a.memory(), b.memory());
  one.context.kernels->rope(one.context, args(a, back, true));
  expect_close(back.values(), in.values(), 8 * unit_roundoff(DType::f32), "there and back");
}

}  // namespace
}  // namespace loam
