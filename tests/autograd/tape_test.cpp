#include "loam/autograd/tape.h"

#include <gtest/gtest.h>

#include "loam/kernels/kernel_table.h"
#include "loam/ops/activation.h"
#include "loam/ops/basic.h"
#include "loam/ops/embedding.h"
#include "loam/ops/linear.h"
#include "loam/ops/linear_log_prob.h"
#include "loam/ops/norm.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/test_params.h"

namespace loam::testing {
namespace {

class TapeTest : public ::testing::Test {
 protected:
  ExecResources resources = guarded_resources();
  TestParams params{resources.context};
  Tape tape;
  Context ctx{resources.context, &tape};

  ~TapeTest() override { EXPECT_EQ(resources.arena->broken_guards(), 0); }

  Tensor tensor(const Shape& shape, uint64_t site) {
    return tensor_of(ctx, shape, DType::f32, random_values(shape.product(), site));
  }
  Tensor constant(const Shape& shape, double value) {
    return tensor_of(ctx, shape, DType::f32, Values(static_cast<size_t>(shape.product()), value));
  }
  Tensor ids(const std::vector<int32_t>& values) {
    return Tensor::from<int32_t>(*ctx.arena, {static_cast<int64_t>(values.size())}, values);
  }
  int64_t in_use(MemoryKind kind) const { return resources.arena->stats().bytes[static_cast<size_t>(kind)]; }
};

TEST_F(TapeTest, OneLeafUsedThreeTimes) {
  const Var x = tape.leaf(constant({2, 3}, 1.5));
  const Var y = ops::add(ctx, ops::add(ctx, ops::scale(ctx, x, 2), x), ops::scale(ctx, x, -7));
  tape.backward(ctx, ops::sum(ctx, y));
  EXPECT_EQ(values_of(tape.grad(x)), Values(6, 2.0 + 1.0 - 7.0));
}

// Two leaves receive the same handed-through gradient; adding to one must not change the other.
TEST_F(TapeTest, SharedGradientIsCopiedBeforeItIsAddedTo) {
  const Var a = tape.leaf(constant({4}, 1)), b = tape.leaf(constant({4}, 1));
  const Var early = ops::scale(ctx, a, 10);
  const Var y = ops::add(ctx, ops::add(ctx, a, b), early);
  tape.backward(ctx, ops::sum(ctx, y));
  EXPECT_EQ(values_of(tape.grad(a)), Values(4, 11.0));
  EXPECT_EQ(values_of(tape.grad(b)), Values(4, 1.0));
}

TEST_F(TapeTest, GivenGradientsAreNotWrittenTo) {
  const Var x = tape.leaf(constant({4}, 1));
  const Var y = ops::scale(ctx, x, 3);
  const Tensor given = constant({4}, 0.5);
  const Var roots[] = {y, x};
  const Tensor gradients[] = {given, given};
  tape.backward(ctx, roots, gradients, {});
  EXPECT_EQ(values_of(tape.grad(x)), Values(4, 0.5 + 1.5));
  EXPECT_EQ(values_of(given), Values(4, 0.5));
}

TEST_F(TapeTest, ResidualStreamAccumulatesInPlace) {
  const Var x = tape.leaf(constant({1 << 16}, 1));
  Var h = x;
  for (int layer = 0; layer < 8; ++layer) h = ops::add(ctx, h, ops::activation(ctx, h, Activation::relu));
  const Var loss = ops::sum(ctx, h);
  h = {};
  resources.arena->reset_peak();
  const int64_t before = resources.arena->stats().total;
  tape.backward(ctx, loss);
  EXPECT_EQ(values_of(tape.grad(x)), Values(1 << 16, 256.0));
  // The gradient of the stream, that of the branch, one more while the shared one is copied; activations go as it
  // walks.
  EXPECT_LT(resources.arena->stats().total_peak - before, 3 * (int64_t{4} << 16) + 4096);
}

TEST_F(TapeTest, PartsWithoutGradientCountAsZero) {
  const Var x = tape.leaf(constant({2, 6}, 1));
  const Var y = ops::scale(ctx, x, 2);
  const std::vector<Var> parts = ops::split(ctx, y, {1, 2, 3});
  tape.backward(ctx, ops::sum(ctx, ops::scale(ctx, parts[1], 5)));
  EXPECT_EQ(values_of(tape.grad(x)), (Values{0, 10, 10, 0, 0, 0, 0, 10, 10, 0, 0, 0}));
}

TEST_F(TapeTest, WholePartAndPartOfPart) {
  const Var x = tape.leaf(constant({4}, 1));
  const std::vector<Var> parts = ops::split(ctx, x, {1, 3});
  const std::vector<Var> again = ops::split(ctx, x, {1, 3});  // the same parts: one gradient
  const std::vector<Var> inner = ops::split(ctx, parts[1], {1, 2});
  const auto sum_of = [&](const Var& v, float factor) { return ops::sum(ctx, ops::scale(ctx, v, factor)); };
  Var loss = sum_of(parts[1], 1);
  loss = ops::add(ctx, loss, sum_of(x, 10));
  loss = ops::add(ctx, loss, sum_of(inner[1], 100));
  loss = ops::add(ctx, loss, sum_of(again[0], 1000));
  loss = ops::add(ctx, loss, sum_of(again[1], 10000));
  tape.backward(ctx, loss);
  EXPECT_EQ(values_of(tape.grad(x)), (Values{1010, 10011, 10111, 10111}));
}

TEST_F(TapeTest, TransposedPartKeepsItsPlace) {
  const Var x = tape.leaf(tensor({2, 3}, 1));
  const Var t = tape.part(x, x.value.transpose(0, 1));
  const Tensor d = tensor_of(ctx, {3, 2}, DType::f32, Values{1, 2, 3, 4, 5, 6});
  tape.backward(ctx, std::span(&t, 1), std::span(&d, 1), {});
  EXPECT_EQ(values_of(tape.grad(x)), (Values{1, 3, 5, 2, 4, 6}));
}

TEST_F(TapeTest, WithoutATapeNothingIsRecorded) {
  const Context plain(resources.context);
  const ParamRef w = params.add(tensor({3, 3}, 1));
  const ParamRef frozen = params.add(tensor({3, 3}, 2), false);
  EXPECT_EQ(ops::linear(plain, Var(tensor({2, 3}, 3)), w).id, -1);
  EXPECT_EQ(ops::linear(ctx, Var(tensor({2, 3}, 3)), frozen).id, -1);  // nothing wants a gradient
  EXPECT_EQ(tape.size(), 0);
  EXPECT_EQ(tape.saved_bytes(), 0);
}

TEST_F(TapeTest, BackwardFreesWhatItUsed) {
  {
    const ParamRef w = params.add(tensor({16, 16}, 1)), g = params.add(constant({16}, 1));
    const int64_t activations = in_use(MemoryKind::activations), gradients = in_use(MemoryKind::gradients);
    const Var x(tensor({8, 16}, 2));
    Var h = x;
    for (int i = 0; i < 3; ++i) h = ops::linear(ctx, ops::rms_norm(ctx, h, g, 1e-5f), w);
    const Var loss = ops::sum(ctx, h);
    EXPECT_GT(tape.saved_bytes(), 6 * 8 * 16 * 4 - 1);  // the inputs of three norms and three products
    EXPECT_EQ(tape.size(), 7);
    h = {};
    tape.backward(ctx, loss);
    EXPECT_EQ(tape.size(), 0);
    EXPECT_EQ(tape.saved_bytes(), 0);
    const int64_t grads = params.gradient(w).bytes() + params.gradient(g).bytes();
    EXPECT_LT(in_use(MemoryKind::gradients), gradients + grads + 512);
    EXPECT_LT(in_use(MemoryKind::activations), activations + x.value.bytes() + 512);  // x and the loss are held here
    EXPECT_EQ(in_use(MemoryKind::workspace), 0);
  }
}

// Tied weights: ready once, when the last of their uses has arrived.
TEST_F(TapeTest, TiedWeightsAreReadyOnce) {
  const ParamRef table = params.add(tensor({7, 4}, 1)), g = params.add(constant({4}, 1));
  std::vector<int32_t> ready;
  tape.on_param_ready([&](const ParamRef& p) {
    EXPECT_TRUE(params.gradient(p));
    ready.push_back(p.index);
  });
  const Var h = ops::rms_norm(ctx, ops::embedding(ctx, ids({1, 3}), table), g, 1e-5f);
  tape.backward(ctx, ops::cross_entropy(ctx, h, table, ids({3, 2}), 0.5f).loss);
  EXPECT_EQ(ready, (std::vector<int32_t>{g.index, table.index}));
}

// A use that no gradient reaches does not hold its parameter back.
TEST_F(TapeTest, UnreachedUseCountsAsArrived) {
  const ParamRef w = params.add(tensor({3, 3}, 1));
  int ready = 0;
  tape.on_param_ready([&](const ParamRef&) { ++ready; });
  const Var x = tape.leaf(tensor({2, 3}, 2));
  const Var y = ops::linear(ctx, x, w);
  ops::linear(ctx, x, w);
  tape.backward(ctx, ops::sum(ctx, y));
  EXPECT_EQ(ready, 1);
}

TEST_F(TapeTest, WeightHalvesRunApart) {
  const ParamRef w = params.add(tensor({3, 3}, 1));
  int ready = 0;
  tape.on_param_ready([&](const ParamRef&) { ++ready; });
  const Var x = tape.leaf(tensor({2, 3}, 2));
  const Var loss = ops::sum(ctx, ops::linear(ctx, ops::linear(ctx, x, w), w));
  Tape::BackwardOptions options;
  options.keep_weight_half = true;
  tape.backward(ctx, loss, options);
  EXPECT_TRUE(tape.grad(x));
  EXPECT_FALSE(params.gradient(w));
  EXPECT_EQ(tape.size(), 2);
  EXPECT_EQ(ready, 0);
  tape.backward_weights(ctx);
  const Values apart = values_of(params.gradient(w));
  EXPECT_EQ(tape.size(), 0);
  EXPECT_EQ(ready, 1);

  params.clear_gradients();
  tape.clear();
  const Var again = tape.leaf(x.value);
  tape.backward(ctx, ops::sum(ctx, ops::linear(ctx, ops::linear(ctx, again, w), w)));
  EXPECT_EQ(values_of(params.gradient(w)), apart);
}

TEST_F(TapeTest, SeveralTapesAtOnce) {
  const ParamRef w = params.add(tensor({3, 3}, 1));
  Tape other;
  const Context second(resources.context, &other);
  const Var x = tape.leaf(constant({1, 3}, 1)), y = other.leaf(constant({1, 3}, 2));
  const Var a = ops::sum(ctx, ops::linear(ctx, x, w)), b = ops::sum(second, ops::linear(second, y, w));
  other.backward(second, b);
  tape.backward(ctx, a);
  EXPECT_EQ(values_of(params.gradient(w)), Values(9, 3.0));
  EXPECT_EQ(values_of(tape.grad(x)), values_of(other.grad(y)));
}

TEST_F(TapeTest, Errors) {
  const Var x = tape.leaf(constant({2}, 1));
  auto message = [&](const Var& root) {
    return error_of(ErrorCode::kInvalidArgument, [&] { tape.backward(ctx, root); });
  };
  EXPECT_EQ(message(ops::scale(ctx, x, 2)), "backward: the root is f32 [2], not one f32 value");
  EXPECT_NE(message(Var(constant({1}, 1))).find("not on the tape"), std::string::npos);
  EXPECT_FALSE(tape.grad(x));
}

#ifdef LOAM_DEBUG
TEST_F(TapeTest, ChangedSavedTensorIsFound) {
  const Var x = tape.leaf(constant({2}, 1));
  const Var loss = ops::sum(ctx, ops::activation(ctx, x, Activation::silu));
  ++x.value.storage()->version;
  EXPECT_EQ(error_of(ErrorCode::kInternal, [&] { tape.backward(ctx, loss); }),
            "tape: x of node activation was changed after it was saved");
}
#endif

}  // namespace
}  // namespace loam::testing
