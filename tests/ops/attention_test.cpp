#include "loam/ops/attention.h"

#include <gtest/gtest.h>

#include "loam/ops/basic.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/op_harness.h"
#include "tests/ops/references.h"

namespace loam::testing {
namespace {

struct Mask {
  bool causal = true;
  std::vector<int32_t> first_key = {}, key_count = {};  // [B,T], [B], or empty
};

OpCase attention_case(const AttentionSizes& z, const Mask& mask) {
  OpCase c;
  c.name = fmt::format("attention B={} T={} S={} H={} K={} D={}{}", z.B, z.T, z.S, z.H, z.K, z.D,
                       mask.causal ? " causal" : "");
  c.inputs = {{{z.B, z.T, z.H, z.D}}, {{z.B, z.S, z.K, z.D}}, {{z.B, z.S, z.K, z.D}}};
  c.c = 8;  // a softmax, then a sum over keys; in bf16 the probabilities are rounded too
  c.op = [=](const Context& ctx, std::span<const Var> in, std::span<const ParamRef>) {
    ops::AttentionOptions options;
    options.causal = mask.causal;
    if (!mask.first_key.empty()) options.first_key = ints(ctx, {z.B, z.T}, mask.first_key);
    if (!mask.key_count.empty()) options.key_count = ints(ctx, {z.B}, mask.key_count);
    return std::vector<Var>{ops::attention(ctx, in[0], in[1], in[2], options)};
  };
  c.reference = [=](std::span<const Values> in, std::span<const Values>) {
    auto sees = [&](int64_t b, int64_t i, int64_t j) {
      const int64_t keys = mask.key_count.empty() ? z.S : mask.key_count[static_cast<size_t>(b)];
      return (!mask.causal || j <= i + keys - z.T) &&
             (mask.first_key.empty() || j >= mask.first_key[static_cast<size_t>(b * z.T + i)]) &&
             (mask.key_count.empty() || j < mask.key_count[static_cast<size_t>(b)]);
    };
    return std::vector<Values>{
        attention_reference(in[0], in[1], in[2], z, 1 / std::sqrt(static_cast<double>(z.D)), sees)};
  };
  return c;
}

TEST(Attention, MatchesReference) {
  check_op(attention_case({1, 1, 1, 1, 1, 8}, {}));
  check_op(attention_case({2, 5, 5, 2, 2, 8}, {}));
  check_op(attention_case({1, 7, 7, 6, 2, 16}, {}));
  check_op(attention_case({1, 3, 9, 2, 1, 8}, {}));                  // the last queries of a longer row
  check_op(attention_case({2, 4, 6, 2, 1, 24}, {.causal = false}));  // no mask
  check_op(attention_case({1, 70, 70, 1, 1, 8}, {}));                // more than one tile
  bench_op(attention_case({4, 256, 256, 12, 12, 64}, {}));
}

TEST(Attention, PackedDocumentsAndPadding) {
  Mask mask;
  mask.first_key = {0, 0, 2, 2, 2, 5, 0, 1, 2, 3, 4, 5};
  check_op(attention_case({2, 6, 6, 2, 1, 8}, mask));
  mask = {};
  mask.key_count = {3, 6};
  check_op(attention_case({2, 6, 6, 2, 1, 8}, mask));
}

// Queries that see no key: result 0 and finite gradients.
TEST(Attention, MaskedRows) {
  Mask mask;
  mask.key_count = {0, 3};
  check_op(attention_case({2, 3, 3, 2, 1, 8}, mask));
  check_op(attention_case({1, 5, 2, 1, 1, 8}, {}));  // more causal queries than keys
  mask = {};
  mask.first_key = {0, 0, 3, 3};
  mask.key_count = {2};
  check_op(attention_case({1, 4, 4, 1, 1, 8}, mask));
}

// A document's result does not change by a bit when the one packed before it does.
TEST(Attention, DocumentsDoNotLeak) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  const Shape shape{1, 6, 2, 8};
  ops::AttentionOptions options;
  options.first_key = ints(ctx, {1, 6}, {0, 0, 0, 3, 3, 3});
  auto second_document = [&](double other) {
    Values x = random_values(shape.product(), 7);
    for (size_t i = 0; i < x.size() / 2; ++i) x[i] *= other;
    const Var v(tensor_of(ctx, shape, DType::f32, x));
    return values_of(ops::attention(ctx, v, v, v, options).value.narrow(1, 3, 3));
  };
  EXPECT_EQ(second_document(1), second_document(-40));
}

// NaN in one row of the batch stays in that row.
TEST(Attention, NanStaysInItsRow) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  const Shape shape{2, 3, 1, 8};
  Values x = random_values(shape.product(), 8);
  x[0] = NAN;
  const Var v(tensor_of(ctx, shape, DType::f32, x));
  const Values y = values_of(ops::attention(ctx, v, v, v, {}).value);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i == 0 || i < y.size() / 2) << i;
}

// One value as query, key and value: its three gradients add up.
TEST(Attention, OneValueForAll) {
  const AttentionSizes z{2, 5, 5, 2, 2, 8};
  OpCase c = attention_case(z, {});
  const auto op = c.op;
  const auto reference = c.reference;
  c.inputs.resize(1);
  c.op = [op](const Context& ctx, std::span<const Var> in, std::span<const ParamRef> p) {
    const Var same[] = {in[0], in[0], in[0]};
    return op(ctx, same, p);
  };
  c.reference = [reference](std::span<const Values> in, std::span<const Values> p) {
    const Values same[] = {in[0], in[0], in[0]};
    return reference(same, p);
  };
  check_op(c);
}

// Query, key and value as slices of one fused projection: no copy, and their gradients meet in the projection's.
TEST(Attention, FusedProjection) {
  constexpr int64_t B = 2, T = 5, H = 4, K = 2, D = 8;
  OpCase c = attention_case({B, T, T, H, K, D}, {});
  const auto op = c.op;
  const auto reference = c.reference;
  c.inputs = {{{B, T, (H + 2 * K) * D}}};
  c.op = [op](const Context& ctx, std::span<const Var> in, std::span<const ParamRef> p) {
    const std::vector<Var> parts = ops::split(ctx, in[0], {H * D, K * D, K * D});
    const Var qkv[] = {ops::reshape(ctx, parts[0], {B, T, H, D}), ops::reshape(ctx, parts[1], {B, T, K, D}),
                       ops::reshape(ctx, parts[2], {B, T, K, D})};
    return op(ctx, qkv, p);
  };
  c.reference = [reference](std::span<const Values> in, std::span<const Values> p) {
    Values qkv[3];
    const int64_t cuts[] = {0, H * D, (H + K) * D, (H + 2 * K) * D};
    for (int64_t row = 0; row < B * T; ++row) {
      const auto at = in[0].begin() + row * cuts[3];
      for (int i = 0; i < 3; ++i) qkv[i].insert(qkv[i].end(), at + cuts[i], at + cuts[i + 1]);
    }
    return reference(qkv, p);
  };
  check_op(c);
}

TEST(Attention, ErrorsNameTheShapes) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  auto zeros = [&](const Shape& shape) { return Var(Tensor::zeros(*ctx.arena, shape, DType::f32)); };
  auto message = [&](const Var& q, const Var& k, const Var& v, const ops::AttentionOptions& options = {}) {
    return error_of(ErrorCode::kInvalidArgument, [&] { ops::attention(ctx, q, k, v, options); });
  };
  const Var q = zeros({1, 2, 4, 8}), k = zeros({1, 2, 3, 8}), odd = zeros({1, 2, 4, 12});
  EXPECT_EQ(message(q, q, k), "attention: q f32 [1, 2, 4, 8], k f32 [1, 2, 4, 8] and v f32 [1, 2, 3, 8] do not fit");
  EXPECT_EQ(message(q, k, k), "attention: 4 query heads are not a multiple of 3 key heads");
  EXPECT_EQ(message(odd, odd, odd), "attention: head dim 12 is not a multiple of 8 up to 256");
  ops::AttentionOptions options;
  options.first_key = ints(ctx, {2}, {0, 0});
  EXPECT_EQ(message(q, q, q, options), "attention: first_key is i32 [2], not i32 [1, 2]");
}

ops::Rotation plain_rotation(const ExecContext& ctx, int64_t R, double theta) {
  std::vector<float> frequency;
  for (int64_t k = 0; k < R / 2; ++k) {
    frequency.push_back(static_cast<float>(std::pow(theta, -2.0 * static_cast<double>(k) / static_cast<double>(R))));
  }
  return {Tensor::from<float>(*ctx.arena, {R / 2}, frequency), 1};
}

OpCase rope_case(int64_t T, int64_t H, int64_t D, int64_t R, RopeLayout layout) {
  OpCase c;
  c.name = fmt::format("rope T={} H={} D={} R={} {}", T, H, D, R, layout == RopeLayout::half ? "half" : "interleaved");
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < 2 * T; ++t) positions.push_back(static_cast<int32_t>(t * 37 % 101));
  c.inputs = {{{2, T, H, D}}};
  c.op = [=](const Context& ctx, std::span<const Var> x, std::span<const ParamRef>) {
    return std::vector<Var>{
        ops::rope(ctx, x[0], ints(ctx, {2, T}, positions), plain_rotation(ctx, R, 10000.0), layout)};
  };
  c.reference = [=](std::span<const Values> x, std::span<const Values>) {
    return std::vector<Values>{rope_reference(x[0], positions, H, D, R, 10000.0, layout)};
  };
  c.row_wise = true;
  c.c = 64;  // the frequency is an f32: at position 100 the angle is off by up to 50 eps
  return c;
}

TEST(Rope, MatchesReference) {
  for (RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
    check_op(rope_case(3, 2, 8, 8, layout));
    check_op(rope_case(5, 3, 24, 16, layout));  // part of a head
    check_op(rope_case(1, 1, 16, 16, layout));
  }
  bench_op(rope_case(512, 12, 64, 64, RopeLayout::half));
}

OpCase stretched_case(int64_t R, float factor, RopeLayout layout) {
  OpCase c = rope_case(4, 2, 24, R, layout);
  c.op = [=](const Context& ctx, std::span<const Var> x, std::span<const ParamRef>) {
    ops::Rotation rotation = plain_rotation(ctx, R, 10000.0);
    rotation.factor = factor;
    return std::vector<Var>{ops::rope(ctx, x[0], ints(ctx, {2, 4}, {0, 1, 2, 3, 7, 5, 90, 11}), rotation, layout)};
  };
  c.reference = [=](std::span<const Values> x, std::span<const Values>) {
    Values y = rope_reference(x[0], {0, 1, 2, 3, 7, 5, 90, 11}, 2, 24, R, 10000.0, layout);
    for (size_t i = 0; i < y.size(); ++i) y[i] *= i % 24 < static_cast<size_t>(R) ? double{factor} : 1.0;
    return std::vector<Values>{y};
  };
  return c;
}

TEST(Rope, StretchesWhatItRotates) {
  for (RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
    check_op(stretched_case(24, 1.25f, layout));
    check_op(stretched_case(16, 0.75f, layout));
  }
}

// Angles far out: cos and sin of position * frequency, in f32 inputs, against double.
TEST(Rope, FarPositions) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  const std::vector<int32_t> positions = {255, 256, 257, 15962, 32767};
  const ops::Rotation rotation = plain_rotation(ctx, 64, 10000.0);
  const Tensor frequency = rotation.frequency;
  for (RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
    const Values x(5 * 64, 1.0);
    const Var y =
        ops::rope(ctx, Var(tensor_of(ctx, {5, 1, 64}, DType::f32, x)), ints(ctx, {5}, positions), rotation, layout);
    const Values got = values_of(y.value);
    // The same frequencies as the op was given, so that only the angle is judged.
    for (size_t n = 0; n < positions.size(); ++n) {
      for (size_t k = 0; k < 32; ++k) {
        const double angle = positions[n] * static_cast<double>(frequency.data<float>()[k]);
        const size_t at = n * 64 + (layout == RopeLayout::half ? k : 2 * k);
        EXPECT_NEAR(got[at], std::cos(angle) - std::sin(angle), 1e-3) << positions[n] << " " << k;
      }
    }
  }
}

TEST(Rope, ErrorsNameTheShapes) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  const Var x(Tensor::zeros(*ctx.arena, {2, 3, 1, 8}, DType::f32));
  const ops::Rotation f = plain_rotation(ctx, 16, 1e4);
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument,
                     [&] {
                       ops::rope(ctx, x, ints(ctx, {2}, {0, 1}), f, RopeLayout::half);
                     }),
            "rope: x [2, 3, 1, 8] needs 6 positions in i32, got [2]");
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument,
                     [&] {
                       ops::rope(ctx, x, ints(ctx, {6}, {0, 1, 2, 3, 4, 5}), f, RopeLayout::half);
                     }),
            "rope: 8 frequencies for heads of 8");
}

}  // namespace
}  // namespace loam::testing
