#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

using namespace testing;  // NOLINT

TEST(EmbeddingKernel, ForwardTakesRows) {
  for_each_target([] {
    const auto r = cpu(2);
    for (const DType dtype : kFloats) {
      for (const int64_t C : kSizes) {
        const int64_t V = 11, N = 37;
        Matrix table(dtype, V, C, 3, random_values(V * C, 1)), out(dtype, N, C, 5);
        auto ids = random_ids(N, V, 2);
        r.context.kernels->embedding_fwd(r.context, {ids_view(ids), table.view(), out.view()});
        for (int64_t n = 0; n < N; ++n) {
          for (int64_t c = 0; c < C; ++c) ASSERT_EQ(out.get(n, c), table.get(ids[static_cast<size_t>(n)], c));
        }
        EXPECT_TRUE(out.intact());
      }
    }
  });
}

TEST(EmbeddingKernel, BackwardSumsInOrderOfTokens) {
  for_each_target([] {
    for (const DType dtype : kFloats) {
      for (const int64_t C : kSizes) {
        const int64_t V = 13, N = 300;
        Matrix d_out(dtype, N, C, 3, random_values(N * C, 1));
        auto ids = random_ids(N, V - 1, 2);  // the last row is named by no id
        for (const bool accumulate : {false, true}) {
          Matrix start(DType::f32, V, C, 5, random_values(V * C, 3)), one = start, three = start;
          const auto a = cpu(1), b = cpu(3);
          a.context.kernels->embedding_bwd(a.context, {ids_view(ids), d_out.view(), one.view(), accumulate});
          b.context.kernels->embedding_bwd(b.context, {ids_view(ids), d_out.view(), three.view(), accumulate});
          EXPECT_EQ(one.memory(), three.memory());
          EXPECT_TRUE(one.intact());
          // The same sums in f32, in the promised order: equal to the last bit.
          std::vector<float> expected;
          for (double v : start.values()) expected.push_back(accumulate ? static_cast<float>(v) : 0.0f);
          for (int64_t n = 0; n < N; ++n) {
            for (int64_t c = 0; c < C; ++c) {
              expected[static_cast<size_t>(ids[static_cast<size_t>(n)] * C + c)] += static_cast<float>(d_out.get(n, c));
            }
          }
          const Values actual = one.values();
          for (size_t i = 0; i < actual.size(); ++i) ASSERT_EQ(actual[i], static_cast<double>(expected[i])) << i;
        }
      }
    }
  });
}

// Runs of equal ids far longer than a piece that a GPU sums at once, and a row of whole 16-byte packs; an id that
// ends just where a piece does.
TEST(EmbeddingKernel, BackwardSumsFrequentIds) {
  const auto r = cpu(2);
  for (const DType dtype : kFloats) {
    for (const int64_t C : {17, 64, 520}) {
      for (const int64_t padding : {3, 8}) {
        const int64_t V = 9, N = 1500;
        Matrix d_out(dtype, N, C, padding, random_values(N * C, 1));
        std::vector<int32_t> ids;
        for (int32_t n = 0; n < N; ++n)
          ids.push_back(n < 64 ? 0 : n < 192 ? 1 : n < 195 ? n - 192 + 2 : n % 5 == 0 ? 7 : 6);
        std::shuffle(ids.begin(), ids.end(), std::mt19937_64(2));
        for (const bool accumulate : {false, true}) {
          Matrix d_table(DType::f32, V, C, padding == 8 ? 4 : 5, random_values(V * C, 3)), again = d_table;
          Values expected = accumulate ? d_table.values() : Values(static_cast<size_t>(V * C));
          for (int64_t n = 0; n < N; ++n) {
            for (int64_t c = 0; c < C; ++c) {
              expected[static_cast<size_t>(ids[static_cast<size_t>(n)] * C + c)] += d_out.get(n, c);
            }
          }
          r.context.kernels->embedding_bwd(r.context, {ids_view(ids), d_out.view(), d_table.view(), accumulate});
          r.context.kernels->embedding_bwd(r.context, {ids_view(ids), d_out.view(), again.view(), accumulate});
          // A chain of 1100 additions, whose roundings mostly cancel.
          expect_close(d_table.values(), expected, 64 * unit_roundoff(DType::f32), dtype_name(dtype));
          EXPECT_EQ(d_table.memory(), again.memory());
          EXPECT_TRUE(d_table.intact());
        }
      }
    }
  }
}

}  // namespace
}  // namespace loam
