#include "loam/autograd/recompute.h"

#include <gtest/gtest.h>

#include "loam/autograd/tape.h"
#include "loam/ops/activation.h"
#include "loam/ops/basic.h"
#include "loam/ops/linear.h"
#include "loam/ops/linear_log_prob.h"
#include "loam/ops/norm.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/test_params.h"

namespace loam::testing {
namespace {

enum class How { plain, segments, nested };

// A small residual network with a weight used in every layer and a tied head; its segments are run in one of three
// ways.
struct Outcome {
  Values loss, d_x, d_shared, d_head;
  std::vector<int32_t> ready;
  int64_t saved = 0, nodes = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome run(How how, DType dtype, bool halves = false) {
  constexpr int64_t N = 6, C = 8, V = 11;
  const ExecResources resources = guarded_resources(1);
  const ExecContext& exec = resources.context;
  TestParams params(exec);
  auto param = [&](const Shape& shape, DType type, uint64_t site) {
    return params.add(tensor_of(exec, shape, type, random_values(shape.product(), site, 0.5)));
  };
  const ParamRef shared = param({C, C}, dtype, 1), gain = param({C}, DType::f32, 2), head = param({V, C}, dtype, 3);

  Tape tape;
  Outcome out;
  tape.on_param_ready([&](const ParamRef& p) { out.ready.push_back(p.index); });
  const Context ctx(exec, &tape);
  const Var x = tape.leaf(tensor_of(exec, {N, C}, dtype, random_values(N * C, 4)));
  const Tensor targets = Tensor::from<int32_t>(*exec.arena, {N}, std::vector<int32_t>{1, 2, -1, 3, 10, 0});

  const Segment branch = [&](const Context& c, const std::vector<Var>& in) {
    return std::vector<Var>{ops::activation(c, ops::linear(c, in[0], shared), Activation::gelu)};
  };
  const Segment layer = [&](const Context& c, const std::vector<Var>& in) {
    const Var h = ops::rms_norm(c, in[0], gain, 1e-5f);
    const Var b = how == How::nested ? recompute(c, branch, {h})[0] : branch(c, {h})[0];
    return std::vector<Var>{ops::add(c, in[0], b)};
  };
  const Segment loss = [&](const Context& c, const std::vector<Var>& in) {
    return std::vector<Var>{ops::cross_entropy(c, in[0], head, targets, 0.2f).loss};
  };
  auto apply = [&](const Segment& segment, const Var& in) {
    return how == How::plain ? segment(ctx, {in})[0] : recompute(ctx, segment, {in})[0];
  };
  Var h = apply(layer, x);
  h = ops::add(ctx, h, x);  // x is used outside the segment too
  h = apply(layer, apply(layer, h));
  const Var root = apply(loss, h);
  out.saved = tape.saved_bytes();
  out.nodes = tape.size();
  Tape::BackwardOptions options;
  options.keep_weight_half = halves;
  tape.backward(ctx, root, options);
  if (halves) tape.backward_weights(ctx);
  out.loss = values_of(root.value);
  out.d_x = values_of(tape.grad(x));
  out.d_shared = values_of(params.gradient(shared));
  out.d_head = values_of(params.gradient(head));
  EXPECT_EQ(tape.size(), 0);
  EXPECT_EQ(resources.arena->broken_guards(), 0);
  return out;
}

TEST(Recompute, BitEqualToTheDirectRun) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Outcome plain = run(How::plain, dtype);
    EXPECT_EQ(plain.nodes, 3 * 4 + 1 + 1);
    for (How how : {How::segments, How::nested}) {
      const Outcome other = run(how, dtype);
      EXPECT_EQ(other.loss, plain.loss);
      EXPECT_EQ(other.d_x, plain.d_x);
      EXPECT_EQ(other.d_shared, plain.d_shared);
      EXPECT_EQ(other.d_head, plain.d_head);
      EXPECT_EQ(other.ready, plain.ready);  // each once, the shared ones after their last use
      EXPECT_EQ(other.ready.size(), 3u);
      EXPECT_EQ(other.nodes, 3 + 1 + 1);
      // Only the inputs of the segments: four tensors of the stream.
      EXPECT_EQ(other.saved, 4 * 6 * 8 * dtype_size(dtype));
      EXPECT_GT(plain.saved, other.saved);
    }
  }
}

TEST(Recompute, WeightHalvesRunApart) {
  const Outcome plain = run(How::plain, DType::f32), halves = run(How::nested, DType::f32, true);
  EXPECT_EQ(halves.d_x, plain.d_x);
  EXPECT_EQ(halves.d_shared, plain.d_shared);
  EXPECT_EQ(halves.ready.size(), 3u);
}

// Results handed through, given twice, and cut into parts inside the segment.
TEST(Recompute, ResultsThatShare) {
  const ExecResources resources = guarded_resources();
  Tape tape;
  const Context ctx(resources.context, &tape);
  const Var x = tape.leaf(tensor_of(ctx, {2, 4}, DType::f32, Values(8, 1.0)));
  const Segment segment = [](const Context& c, const std::vector<Var>& in) {
    const Var y = ops::scale(c, in[0], 3);
    const std::vector<Var> parts = ops::split(c, ops::scale(c, in[0], 5), {1, 3});
    return std::vector<Var>{in[0], y, y, parts[0], parts[1]};
  };
  const std::vector<Var> r = recompute(ctx, segment, {x});
  EXPECT_EQ(r[0].id, x.id);
  EXPECT_EQ(r[1].id, r[2].id);
  Var loss = ops::sum(ctx, ops::add(ctx, r[1], r[2]));
  loss = ops::add(ctx, loss, ops::sum(ctx, r[0]));
  loss = ops::add(ctx, loss, ops::sum(ctx, ops::scale(ctx, r[3], 10)));
  tape.backward(ctx, loss);
  EXPECT_EQ(values_of(tape.grad(x)), (Values{57, 7, 7, 7, 57, 7, 7, 7}));
}

// Backward opens x by the parts of the segment that ran last; the other one then cuts x elsewhere.
TEST(Recompute, SegmentsThatCutOneValueDifferently) {
  for (const bool again : {false, true}) {
    const ExecResources resources = guarded_resources();
    Tape tape;
    const Context ctx(resources.context, &tape);
    const Var x = tape.leaf(tensor_of(ctx, {2, 4}, DType::f32, Values(8, 1.0)));
    const auto cut = [&](const std::vector<int64_t>& sizes, float first, float second) {
      const Segment segment = [=](const Context& c, const std::vector<Var>& in) {
        const std::vector<Var> parts = ops::split(c, in[0], sizes);
        return std::vector<Var>{
            ops::add(c, ops::sum(c, ops::scale(c, parts[0], first)), ops::sum(c, ops::scale(c, parts[1], second)))};
      };
      return again ? recompute(ctx, segment, {x})[0] : segment(ctx, {x})[0];
    };
    const Var one = cut({2, 2}, 1, 10), other = cut({1, 3}, 100, 1000);
    tape.backward(ctx, ops::add(ctx, one, other));
    EXPECT_EQ(values_of(tape.grad(x)), (Values{101, 1001, 1010, 1010, 101, 1001, 1010, 1010})) << again;
  }
}

// What a chain of eight stages costs: the reruns are counted by hand.
struct ChainCase {
  std::vector<int64_t> sizes, reruns;
  int64_t kept = 0;  // stages' inputs that forward leaves
};
const std::vector<ChainCase> kChains{
    {{1}, {1, 1, 1, 1, 1, 1, 1, 1}, 8},       {{3}, {1, 1, 1, 1, 1, 1, 1, 1}, 3}, {{8}, {1, 1, 1, 1, 1, 1, 1, 1}, 1},
    {{8, 2}, {2, 2, 2, 2, 2, 2, 1, 1}, 1},     // the last two of the eight are recorded when the eight run again
    {{8, 4, 1}, {3, 3, 3, 2, 2, 2, 2, 1}, 1},  // so are the last four, and the last one of them
    {{4, 3}, {2, 2, 2, 1, 2, 2, 2, 1}, 2},
};

TEST(Recompute, AChainInNestedGroupsIsBitEqualAndRunsAsOftenAsItSays) {
  constexpr int64_t N = 5, C = 8, kStages = 8;
  const ExecResources resources = guarded_resources(1);
  const ExecContext& exec = resources.context;
  TestParams params(exec);
  std::vector<ParamRef> weights;
  for (uint64_t i = 0; i < kStages; ++i)
    weights.push_back(params.add(tensor_of(exec, {C, C}, DType::f32, random_values(C * C, i, 0.5))));
  struct Result {
    Values value, d_x;
    std::vector<Values> gradients;
    int64_t kept = 0;
    std::vector<int64_t> runs = std::vector<int64_t>(kStages, 0);
  };
  const auto run = [&](const std::vector<int64_t>& sizes) {
    Result out;
    Tape tape;
    const Context ctx(exec, &tape);
    params.clear_gradients();
    const Var x = tape.leaf(tensor_of(exec, {N, C}, DType::f32, random_values(N * C, 99)));
    const Stage stage = [&](const Context& c, int64_t i, const Var& in) {
      ++out.runs[static_cast<size_t>(i)];
      return ops::add(c, in, ops::activation(c, ops::linear(c, in, weights[static_cast<size_t>(i)]), Activation::gelu));
    };
    const Var y = recompute_chain(ctx, kStages, sizes, stage, x);
    out.kept = tape.saved_bytes() / (N * C * 4);
    tape.backward(ctx, ops::sum(ctx, y));
    out.value = values_of(y.value);
    out.d_x = values_of(tape.grad(x));
    for (const ParamRef& w : weights) out.gradients.push_back(values_of(params.gradient(w)));
    return out;
  };
  const Result plain = run({});
  EXPECT_EQ(plain.runs, std::vector<int64_t>(kStages, 1));
  for (const ChainCase& c : kChains) {
    SCOPED_TRACE(::testing::PrintToString(c.sizes));
    const Result other = run(c.sizes);
    EXPECT_EQ(other.value, plain.value);
    EXPECT_EQ(other.d_x, plain.d_x);
    EXPECT_EQ(other.gradients, plain.gradients);
    EXPECT_EQ(other.kept, c.kept);
    EXPECT_EQ(chain_reruns(kStages, c.sizes), c.reruns);
    for (size_t i = 0; i < c.reruns.size(); ++i) EXPECT_EQ(other.runs[i], 1 + c.reruns[i]) << i;
  }
}

TEST(Recompute, WithoutATapeIsTheSegment) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  const Var x(tensor_of(ctx, {3}, DType::f32, Values{1, 2, 3}));
  const Segment segment = [](const Context& c, const std::vector<Var>& in) {
    return std::vector<Var>{ops::scale(c, in[0], 2)};
  };
  EXPECT_EQ(values_of(recompute(ctx, segment, {x})[0].value), (Values{2, 4, 6}));
}

}  // namespace
}  // namespace loam::testing
