#include "loam/ops/embedding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/harness/expect_error.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/test_params.h"
#include "tests/ops/references.h"

namespace loam::testing {
namespace {

TEST(Embedding, MatchesReference) {
  constexpr int64_t V = 11;
  const std::vector<int32_t> ids = {3, 0, 10, 3, 3, 7};  // repeated, first, last; some never
  for (int64_t C : {1, 5, 16, 33}) {
    OpCase c;
    c.name = fmt::format("embedding C={}", C);
    c.params = {{{V, C}}};
    c.op = [ids](const Context& ctx, std::span<const Var>, std::span<const ParamRef> p) {
      return std::vector<Var>{ops::embedding(ctx, ints(ctx, {2, 3}, ids), p[0])};
    };
    c.reference = [ids, C](std::span<const Values>, std::span<const Values> p) {
      Values y;
      for (int32_t id : ids) y.insert(y.end(), p[0].begin() + id * C, p[0].begin() + (id + 1) * C);
      return std::vector<Values>{y};
    };
    check_op(c);
  }
}

// Of a row that is no number each place that asks for it has all, and no other place anything.
TEST(Embedding, BadRowsStayAlone) {
  constexpr int64_t V = 5, C = 7;
  const std::vector<int32_t> ids = {3, 0, 3, 4};
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      TestParams params(ctx);
      Values table = random_values(V * C, 1);
      for (const int64_t row : {1, 3}) std::fill_n(table.begin() + row * C, C, bad);  // nobody asks for row 1
      const ParamRef weight = params.add(tensor_of(ctx, {V, C}, dtype, table));
      const Values got = values_of(ops::embedding(ctx, ints(ctx, {4}, ids), weight).value);
      for (size_t i = 0; i < got.size(); ++i) {
        const bool expected = ids[i / C] == 3;
        EXPECT_EQ(std::isnan(bad) ? std::isnan(got[i]) : std::isinf(got[i]), expected) << i;
        EXPECT_EQ(std::isfinite(got[i]), !expected) << i;
      }
    }
  }
}

TEST(Embedding, IdOutsideTheTable) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  TestParams params(ctx);
  const ParamRef table = params.add(ctx.empty({4, 2}, DType::f32));
  for (int32_t bad : {-1, 4, 1000000}) {
    EXPECT_EQ(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         ops::embedding(ctx, ints(ctx, {2}, {0, bad}), table);
                       }),
              fmt::format("embedding: id {} is outside [0, 4)", bad));
  }
}

}  // namespace
}  // namespace loam::testing
