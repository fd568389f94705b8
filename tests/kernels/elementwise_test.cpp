#include "tests/harness/expect_error.h"
#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

using namespace testing;  // NOLINT

View transposed(const Matrix& m) {
  View v = m.view();
  std::swap(v.shape[0], v.shape[1]);
  std::swap(v.strides[0], v.strides[1]);
  return v;
}

Values transposed(const Values& v, int64_t rows, int64_t cols) {
  Values t(v.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) t[static_cast<size_t>(c * rows + r)] = v[static_cast<size_t>(r * cols + c)];
  }
  return t;
}

// Correctly rounded results: every element must be exact.
void expect_rounded(const Matrix& m, const Values& exact, const std::string& what) {
  const Values actual = m.values();
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(actual[i], rounded(m.dtype(), exact[i])) << what << " element " << i;
  }
  EXPECT_TRUE(m.intact()) << what;
}

TEST(ElementwiseKernel, FillWritesRowsAlone) {
  const auto r = cpu(2);
  for_each_target([&] {
    for (const DType dtype : kFloats) {
      for (const int64_t C : kSizes) {
        Matrix m(dtype, 3, C, 4);
        r.context.kernels->fill(r.context, {m.view(), 1.5f});
        expect_rounded(m, Values(static_cast<size_t>(3 * C), 1.5), "fill");
        r.context.kernels->fill(r.context, {transposed(m), -2.0f});
        expect_rounded(m, Values(static_cast<size_t>(3 * C), -2), "fill transposed");
      }
    }
  });
  std::vector<int32_t> ids(100, 0);
  r.context.kernels->fill(r.context, {ids_view(ids), -1});
  EXPECT_EQ(ids, std::vector<int32_t>(100, -1));
}

TEST(ElementwiseKernel, CopyConvertsAndAdds) {
  const auto r = cpu(2);
  const KernelTable& k = *r.context.kernels;
  for_each_target([&] {
    for (const DType from : kFloats) {
      for (const DType to : kFloats) {
        for (const int64_t C : kSizes) {
          const std::string what = fmt::format("{} to {} x {}", dtype_name(from), dtype_name(to), C);
          Matrix in(from, 5, C, 3, random_values(5 * C, 1)), out(to, 5, C, 6), flat(to, 5, C);
          k.copy(r.context, {in.view(), out.view()});
          expect_rounded(out, in.values(), what);
          k.copy(r.context, {in.view(), flat.view()});
          expect_rounded(flat, in.values(), what + " contiguous");
          Matrix turned(to, C, 5, 2);
          k.copy(r.context, {transposed(in), turned.view()});
          expect_rounded(turned, transposed(in.values(), 5, C), what + " transposed");
          Values sum = out.values(), x = in.values();
          for (int times = 0; times < 2; ++times) {
            const Values before = out.values();
            for (size_t i = 0; i < sum.size(); ++i) sum[i] = before[i] + x[i];
            k.copy(r.context, {in.view(), out.view(), true});
            expect_rounded(out, sum, what + " added");
          }
        }
      }
    }
  });
}

TEST(ElementwiseKernel, CopyOfOtherTypesMovesBits) {
  const auto r = cpu();
  std::vector<int64_t> in{1, -2, int64_t{1} << 40, 4}, out(8, 7);
  const View from{in.data(), DType::i64, {}, {4}, {1}}, to{out.data(), DType::i64, {}, {4}, {2}};
  r.context.kernels->copy(r.context, {from, to});
  EXPECT_EQ(out, (std::vector<int64_t>{1, 7, -2, 7, int64_t{1} << 40, 7, 4, 7}));
  Matrix f(DType::f32, 1, 4);
  EXPECT_LOAM_ERROR(r.context.kernels->copy(r.context, {from, f.row()}), ErrorCode::kInvalidArgument, "i64 to f32");
  EXPECT_LOAM_ERROR(r.context.kernels->copy(r.context, {from, to, true}), ErrorCode::kInvalidArgument, "i64");
}

// Every bf16 there is, through f32 and back; and between each and the next, the values that decide the rounding.
TEST(ElementwiseKernel, Bf16RoundsToNearestEven) {
  std::vector<float> in;
  std::vector<uint16_t> expected;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto exact = std::bit_cast<float>(bits << 16);
    in.push_back(exact);
    expected.push_back(static_cast<uint16_t>(std::isnan(exact) ? bits | 0x40 : bits));
    if ((bits & 0x7F80) == 0x7F80) continue;  // no number follows an infinity
    const uint16_t next = static_cast<uint16_t>(bits + 1), even = static_cast<uint16_t>(bits & 1 ? bits + 1 : bits);
    for (const auto& [low, to] : {std::pair<uint32_t, uint16_t>{0x0001, static_cast<uint16_t>(bits)},
                                  {0x7FFF, static_cast<uint16_t>(bits)},
                                  {0x8000, even},
                                  {0x8001, next},
                                  {0xFFFF, next}}) {
      in.push_back(std::bit_cast<float>(bits << 16 | low));
      expected.push_back(to);
    }
  }
  const auto r = cpu(2);
  for_each_target([&] {
    std::vector<Bf16> out(in.size());
    const auto n = static_cast<int64_t>(in.size());
    r.context.kernels->copy(r.context,
                            {View{in.data(), DType::f32, {}, {n}, {1}}, View{out.data(), DType::bf16, {}, {n}, {1}}});
    int64_t wrong = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      // A GPU has one NaN.
      const bool is_nan = on_cuda() && std::isnan(in[i]) && std::isnan(static_cast<float>(out[i]));
      wrong += out[i].bits != expected[i] && !is_nan;
    }
    EXPECT_EQ(wrong, 0);
    std::vector<float> back(in.size());
    r.context.kernels->copy(r.context,
                            {View{out.data(), DType::bf16, {}, {n}, {1}}, View{back.data(), DType::f32, {}, {n}, {1}}});
    wrong = 0;
    for (size_t i = 0; i < in.size(); ++i) wrong += std::bit_cast<uint32_t>(back[i]) != uint32_t{out[i].bits} << 16;
    EXPECT_EQ(wrong, 0);
  });
}

// Every f16 there is, through f32 and back; and the values that decide the rounding to it. What they round to follows
// from distances in f64, of numbers made by the definition of binary16: sign, 5 bits of exponent, 10 of fraction.
TEST(ElementwiseKernel, F16RoundsToNearestEven) {
  const auto value = [](uint32_t bits) {  // of a magnitude; beyond the last number its place on the line
    const int exponent = static_cast<int>(bits >> 10);
    const double fraction = (bits & 0x3FF) / 1024.0;
    return exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  };
  std::vector<float> in;
  std::vector<uint16_t> expected;
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double low = value(bits), high = value(bits + 1);
    const auto middle = static_cast<float>(low + (high - low) / 2);
    for (const float x :
         {static_cast<float>(low), std::nextafter(static_cast<float>(low), INFINITY), std::nextafter(middle, 0.0f),
          middle, std::nextafter(middle, INFINITY), std::nextafter(static_cast<float>(high), 0.0f)}) {
      const double below = x - low, above = high - x;
      const uint32_t nearest = below < above || (below == above && bits % 2 == 0) ? bits : bits + 1;
      for (const uint32_t sign : {0x0000u, 0x8000u}) {
        in.push_back(sign ? -x : x);
        expected.push_back(static_cast<uint16_t>(sign | nearest));
      }
    }
  }
  for (const float x : {65520.0f, 65536.0f, 1e6f, 3e38f, INFINITY}) {
    in.insert(in.end(), {x, -x});
    expected.insert(expected.end(), {0x7C00, 0xFC00});
  }
  const auto finite = static_cast<int64_t>(in.size());
  for (const uint32_t bits : {0x7FC00000u, 0x7F800001u, 0xFFFFFFFFu}) in.push_back(std::bit_cast<float>(bits));
  const auto r = cpu(2);
  for_each_target([&] {
    std::vector<F16> out(in.size());
    const auto n = static_cast<int64_t>(in.size());
    r.context.kernels->copy(r.context,
                            {View{in.data(), DType::f32, {}, {n}, {1}}, View{out.data(), DType::f16, {}, {n}, {1}}});
    int64_t wrong = 0;
    for (int64_t i = 0; i < finite; ++i) wrong += out[static_cast<size_t>(i)].bits != expected[static_cast<size_t>(i)];
    EXPECT_EQ(wrong, 0);
    std::vector<float> back(in.size());
    r.context.kernels->copy(r.context,
                            {View{out.data(), DType::f16, {}, {n}, {1}}, View{back.data(), DType::f32, {}, {n}, {1}}});
    wrong = 0;
    for (int64_t i = 0; i < finite; ++i) {
      const uint32_t bits = expected[static_cast<size_t>(i)], magnitude = bits & 0x7FFF;
      const double exact = magnitude == 0x7C00 ? INFINITY : value(magnitude);
      const float x = back[static_cast<size_t>(i)];
      wrong += std::abs(x) != exact || std::signbit(x) != (bits >= 0x8000);
    }
    EXPECT_EQ(wrong, 0);
    for (int64_t i = finite; i < n; ++i) EXPECT_TRUE(std::isnan(back[static_cast<size_t>(i)]));
  });
}

// Whoever scales a loss looks for infinities: nothing stops at the largest number.
TEST(ElementwiseKernel, F16OverflowIsInfinity) {
  const auto r = cpu();
  const KernelTable& k = *r.context.kernels;
  for_each_target([&] {
    for (const int64_t C : {1, 8, 17}) {
      const auto count = static_cast<size_t>(C);
      Matrix large(DType::f16, 1, C, 0, Values(count, -60000)), out(DType::f16, 1, C);
      const auto expect_infinity = [&](double sign, const char* what) {
        EXPECT_EQ(out.values(), Values(count, sign * INFINITY)) << what;
      };
      k.fill(r.context, {out.view(), 65520});
      expect_infinity(1, "fill");
      k.add(r.context, {large.view(), large.view(), out.view()});
      expect_infinity(-1, "add");
      k.scale(r.context, {large.view(), -2, out.view()});
      expect_infinity(1, "scale");
      k.copy(r.context, {large.view(), out.view()});
      k.copy(r.context, {large.view(), out.view(), true});
      expect_infinity(-1, "copy that adds");
    }
  });
}

TEST(ElementwiseKernel, AddAndScale) {
  const auto r = cpu(2);
  const KernelTable& k = *r.context.kernels;
  for_each_target([&] {
    for (const DType dtype : kFloats) {
      for (const DType b_type : kFloats) {
        for (const int64_t C : kSizes) {
          Matrix a(dtype, 5, C, 3, random_values(5 * C, 1)), b(b_type, 5, C, 1, random_values(5 * C, 2));
          Values sum = a.values(), tripled = a.values();
          const Values b_values = b.values();
          for (size_t i = 0; i < sum.size(); ++i) {
            sum[i] += b_values[i];
            tripled[i] *= 3;
          }
          for (const DType out_type : kFloats) {
            Matrix out(out_type, 5, C, 2);
            k.add(r.context, {a.view(), b.view(), out.view()});
            expect_rounded(out, sum, "add");
            k.scale(r.context, {a.view(), 3, out.view()});
            expect_rounded(out, tripled, "scale");
          }
          k.add(r.context, {a.view(), b.view(), a.view()});
          expect_rounded(a, sum, "add in place");
        }
      }
    }
  });
}

TEST(ElementwiseKernel, SumRows) {
  for_each_target([] {
    for (const DType dtype : kFloats) {
      for (const int64_t C : kSizes) {
        for (const int64_t N : {1, 17, 65, 2000}) {
          Matrix in(dtype, N, C, 3, random_values(N * C, 1)), out(DType::f32, 1, C, 0, random_values(C, 2));
          Matrix other = out;
          Values sum = out.values();
          const Values x = in.values();
          for (size_t i = 0; i < x.size(); ++i) sum[i % static_cast<size_t>(C)] += 2 * x[i];
          const auto one = cpu(1), three = cpu(3);
          for (int times = 0; times < 2; ++times) {
            one.context.kernels->sum_rows(one.context, {in.view(), out.row(), true});
            three.context.kernels->sum_rows(three.context, {in.view(), other.row(), true});
          }
          // At most N/64 + 64 additions in a chain; their errors add up like a random walk.
          expect_close(out.values(), sum, 32 * unit_roundoff(DType::f32) * (N > 100 ? 4 : 1),
                       fmt::format("{} x {}", N, C));
          EXPECT_TRUE(out.intact());
          EXPECT_EQ(out.memory(), other.memory()) << "1 and 3 threads";
          one.context.kernels->sum_rows(one.context, {in.view(), other.row(), false});
          EXPECT_NE(out.memory(), other.memory());
        }
      }
    }
  });
}

TEST(ElementwiseKernel, NothingIsFine) {
  const auto r = cpu(2);
  Matrix empty(DType::f32, 0, 5);
  r.context.kernels->fill(r.context, {empty.view(), 1});
  r.context.kernels->copy(r.context, {empty.view(), empty.view()});
  r.context.kernels->add(r.context, {empty.view(), empty.view(), empty.view()});
  Matrix sums(DType::f32, 1, 5, 0, Values(5, 2));
  r.context.kernels->sum_rows(r.context, {empty.view(), sums.row()});
  EXPECT_EQ(sums.values(), Values(5, 0));
  EXPECT_TRUE(empty.intact());
}

// Every element against the random bits of its place, for rows of whole 16-byte packs and others.
TEST(DropoutKernel, DropsByTheBitsOfItsPlace) {
  const auto r = cpu(2);
  ExecContext ctx = r.context;
  ctx.seed = 77;
  StepState step;
  step.first_sample = (int64_t{1} << 33) + 5;
  const float p = 0.3f;
  for (const bool in_training : {false, true}) {
    ctx.step = in_training ? &step : nullptr;
    for (const DType dtype : kFloats) {
      for (const int64_t n : {1, 3, 17, 64, 4100}) {
        for (const int64_t padding : {3, 8}) {
          const int64_t B = 3;
          const uint64_t site = 12;
          Matrix in(dtype, B, n, padding, random_values(B * n, 1)), out(dtype, B, n, padding);
          Values expected;
          for (int64_t b = 0; b < B; ++b) {
            const PhiloxStream stream{ctx.seed ^ site * 0x9E3779B97F4A7C15u,
                                      static_cast<uint64_t>((in_training ? step.first_sample : 0) + b)};
            for (int64_t i = 0; i < n; ++i) {
              const bool dropped = stream.bits(static_cast<uint64_t>(i)) < p * 0x1p32;
              expected.push_back(dropped ? 0 : in.get(b, i) / (1 - p));
            }
          }
          const double tolerance = 4 * unit_roundoff(DType::f32) + unit_roundoff(dtype);
          ctx.kernels->dropout(ctx, {in.view(), p, site, out.view()});
          const Values once = out.values();
          for (size_t i = 0; i < once.size(); ++i) ASSERT_EQ(once[i] == 0, expected[i] == 0) << i;
          expect_close(once, expected, tolerance, "out");
          ctx.kernels->dropout(ctx, {in.view(), p, site, out.view(), true});
          for (double& v : expected) v *= 2;
          expect_close(out.values(), expected, 2 * tolerance, "added");
          EXPECT_TRUE(in.intact() && out.intact());
        }
      }
    }
  }
}

}  // namespace
}  // namespace loam
