#include "loam/ops/linear_log_prob.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "loam/ops/basic.h"
#include "loam/ops/head.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/test_params.h"
#include "tests/ops/references.h"

namespace loam::testing {
namespace {

std::vector<int32_t> some_targets(int64_t N, int64_t V) {
  std::vector<int32_t> targets;
  for (int64_t n = 0; n < N; ++n) targets.push_back(static_cast<int32_t>(n % 4 == 2 ? -1 : (n * 7 + 1) % V));
  return targets;
}

OpCase log_prob_case(int64_t N, int64_t C, int64_t V, const std::vector<int32_t>& targets) {
  OpCase c;
  c.name = fmt::format("linear_log_prob N={} C={} V={}", N, C, V);
  c.inputs = {{{N, C}}};
  c.params = {{{V, C}}};
  c.c = 8;
  // A row without target has log-probability 0, NaN or not.
  c.row_wise = std::count(targets.begin(), targets.end(), -1) == 0;
  c.op = [=](const Context& ctx, std::span<const Var> in, std::span<const ParamRef> p) {
    const ops::LogProb r = ops::linear_log_prob(ctx, in[0], p[0], ints(ctx, {N}, targets), true);
    return std::vector<Var>{r.logp, r.lse, Var(r.entropy)};
  };
  c.reference = [=](std::span<const Values> in, std::span<const Values> p) {
    const LogProbReference r = log_prob_reference(in[0], p[0], targets, C);
    return std::vector<Values>{r.logp, r.lse, r.entropy};
  };
  return c;
}

OpCase log_prob_case(int64_t N, int64_t C, int64_t V) { return log_prob_case(N, C, V, some_targets(N, V)); }

OpCase cross_entropy_case(int64_t N, int64_t C, int64_t V) {
  OpCase c = log_prob_case(N, C, V);
  c.name = fmt::format("cross_entropy N={} C={} V={}", N, C, V);
  c.unit_gradient = true;
  const std::vector<int32_t> targets = some_targets(N, V);
  c.op = [=](const Context& ctx, std::span<const Var> in, std::span<const ParamRef> p) {
    const ops::CrossEntropy r = ops::cross_entropy(ctx, in[0], p[0], ints(ctx, {N}, targets), 0.25f);
    return std::vector<Var>{r.loss, Var(r.losses)};
  };
  c.reference = [=](std::span<const Values> in, std::span<const Values> p) {
    Values losses = log_prob_reference(in[0], p[0], targets, C).logp;
    double sum = 0;
    for (double& loss : losses) sum += loss = -loss;
    return std::vector<Values>{{0.25 * sum}, losses};
  };
  return c;
}

TEST(LinearLogProb, MatchesReference) {
  check_op(log_prob_case(1, 1, 2));
  check_op(log_prob_case(5, 7, 11));
  check_op(log_prob_case(9, 16, 33));
  bench_op(log_prob_case(1024, 288, 8192));
}

// Where every row has a target, NaN or infinity in one shows in it and in no other.
TEST(LinearLogProb, BadRowsStayAlone) { check_op(log_prob_case(5, 7, 11, {3, 0, 10, 7, 7})); }

TEST(CrossEntropy, MatchesReference) {
  check_op(cross_entropy_case(1, 1, 2));
  check_op(cross_entropy_case(5, 7, 11));
  check_op(cross_entropy_case(9, 16, 33));
  bench_op(cross_entropy_case(1024, 288, 8192));
}

// A head with everything: scale, bias and cap of the logits.
constexpr double kLogitScale = 0.75, kSoftcap = 1.5, kZLoss = 0.1;

ops::LanguageHead full_head(std::span<const ParamRef> p) {
  ops::LanguageHead head(p[0]);
  head.bias = p[1];
  head.scale = static_cast<float>(kLogitScale);
  head.softcap = static_cast<float>(kSoftcap);
  return head;
}
LogProbReference full_head_reference(const Values& hidden, std::span<const Values> p,
                                     const std::vector<int32_t>& targets, int64_t C) {
  Values logits = linear_reference(hidden, p[0], {}, C);
  const size_t V = p[1].size();
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = kSoftcap * std::tanh((kLogitScale * logits[i] + p[1][i % V]) / kSoftcap);
  }
  return log_prob_reference(logits, targets);
}

OpCase full_head_case(int64_t N, int64_t C, int64_t V) {
  OpCase c = log_prob_case(N, C, V);
  c.name += " scale, bias, cap";
  c.params.push_back({{V}});
  const std::vector<int32_t> targets = some_targets(N, V);
  c.op = [=](const Context& ctx, std::span<const Var> in, std::span<const ParamRef> p) {
    const ops::LogProb r = ops::linear_log_prob(ctx, in[0], full_head(p), ints(ctx, {N}, targets), true);
    return std::vector<Var>{r.logp, r.lse, Var(r.entropy)};
  };
  c.reference = [=](std::span<const Values> in, std::span<const Values> p) {
    const LogProbReference r = full_head_reference(in[0], p, targets, C);
    return std::vector<Values>{r.logp, r.lse, r.entropy};
  };
  return c;
}

OpCase full_loss_case(int64_t N, int64_t C, int64_t V) {
  OpCase c = cross_entropy_case(N, C, V);
  c.name += " scale, bias, cap, z-loss";
  c.params.push_back({{V}});
  const std::vector<int32_t> targets = some_targets(N, V);
  c.op = [=](const Context& ctx, std::span<const Var> in, std::span<const ParamRef> p) {
    const ops::CrossEntropy r =
        ops::cross_entropy(ctx, in[0], full_head(p), ints(ctx, {N}, targets), 0.25f, static_cast<float>(kZLoss));
    return std::vector<Var>{r.loss, Var(r.losses)};
  };
  c.reference = [=](std::span<const Values> in, std::span<const Values> p) {
    const LogProbReference r = full_head_reference(in[0], p, targets, C);
    Values losses;
    double sum = 0;
    for (size_t n = 0; n < targets.size(); ++n) {
      losses.push_back(-r.logp[n]);
      if (targets[n] >= 0) sum += -r.logp[n] + kZLoss * r.lse[n] * r.lse[n];
    }
    return std::vector<Values>{{0.25 * sum}, losses};
  };
  return c;
}

TEST(LinearLogProb, HeadsWithScaleBiasAndCapMatchReference) {
  check_op(full_head_case(5, 7, 11));
  check_op(full_head_case(9, 16, 33));
}

TEST(CrossEntropy, HeadsWithScaleBiasCapAndZLossMatchReference) {
  check_op(full_loss_case(5, 7, 11));
  check_op(full_loss_case(9, 16, 33));
}

struct Head {
  Values d_hidden, d_weight, losses;
  double loss = 0;
  int64_t workspace = 0;
};

// Loss and gradients of the mean negative log-probability, by one op or the other.
Head run_head(bool fast, int64_t N, int64_t C, int64_t V, double weight_scale, int64_t micro_batches = 1) {
  const ExecResources resources = testing::test_resources(2);
  TestParams params(resources.context);
  const ParamRef weight =
      params.add(tensor_of(resources.context, {V, C}, DType::f32, random_values(V * C, 1, weight_scale)));
  const Values x = random_values(N * C, 2);
  const std::vector<int32_t> targets = some_targets(N, V);
  const auto count =
      static_cast<float>(std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; }));
  Head head;
  const int64_t rows = N / micro_batches;
  for (int64_t m = 0; m < micro_batches; ++m) {
    Tape tape;
    const Context ctx(resources.context, &tape);
    const Values part(x.begin() + m * rows * C, x.begin() + (m + 1) * rows * C);
    const std::vector<int32_t> part_targets(targets.begin() + m * rows, targets.begin() + (m + 1) * rows);
    const Var hidden = tape.leaf(tensor_of(ctx, {rows, C}, DType::f32, part));
    Var loss;
    if (fast) {
      const ops::CrossEntropy r = ops::cross_entropy(ctx, hidden, weight, ints(ctx, {rows}, part_targets), 1 / count);
      loss = r.loss;
      for (double v : values_of(r.losses)) head.losses.push_back(v);
    } else {
      const ops::LogProb r = ops::linear_log_prob(ctx, hidden, weight, ints(ctx, {rows}, part_targets));
      loss = ops::scale(ctx, ops::sum(ctx, r.logp), -1 / count);
      for (double v : values_of(r.logp.value)) head.losses.push_back(-v);
    }
    head.loss += values_of(loss.value)[0];
    tape.backward(ctx, loss);
    for (double v : values_of(tape.grad(hidden))) head.d_hidden.push_back(v);
  }
  head.d_weight = values_of(params.gradient(weight));
  head.workspace = resources.arena->stats().peak[static_cast<size_t>(MemoryKind::workspace)];
  return head;
}

// More columns than a tile has, more rows than a chunk has; the two ops against each other and against double.
TEST(CrossEntropy, EqualsLinearLogProbAcrossChunks) {
  constexpr int64_t N = 2100, C = 3, V = 9001;
  const Head fast = run_head(true, N, C, V, 1), slow = run_head(false, N, C, V, 1);
  EXPECT_LE(fast.workspace, ops::kLogitsBytes + (1 << 20));
  EXPECT_LE(slow.workspace, ops::kLogitsBytes + (1 << 20));
  const double tolerance = 8 * dtype_eps(DType::f32);
  EXPECT_LT(relative_error(fast.losses, slow.losses), tolerance);
  EXPECT_LT(relative_error(fast.d_hidden, slow.d_hidden), tolerance);
  EXPECT_LT(relative_error(fast.d_weight, slow.d_weight), tolerance);
  Values w = random_values(V * C, 1), x = random_values(N * C, 2);
  for (Values* values : {&w, &x}) {
    for (double& v : *values) v = static_cast<float>(v);
  }
  const LogProbReference reference = log_prob_reference(x, w, some_targets(N, V), C);
  Values losses = reference.logp;
  for (double& v : losses) v = -v;
  EXPECT_LT(relative_error(fast.losses, losses), tolerance);
  EXPECT_LT(relative_error(slow.losses, losses), tolerance);
}

// Logits a thousand times too large: no overflow; wrong rows lose their whole margin.
TEST(CrossEntropy, SurvivesLargeLogits) {
  constexpr int64_t N = 6, C = 4, V = 9;
  Values w = random_values(V * C, 1, 1000), x = random_values(N * C, 2);
  for (Values* values : {&w, &x}) {
    for (double& v : *values) v = static_cast<float>(v);
  }
  Values losses = log_prob_reference(x, w, some_targets(N, V), C).logp;
  for (double& v : losses) v = -v;
  for (bool fast : {true, false}) {
    const Head head = run_head(fast, N, C, V, 1000);
    EXPECT_LT(relative_error(head.losses, losses), 8 * dtype_eps(DType::f32));
    for (double v : head.d_weight) EXPECT_TRUE(std::isfinite(v));
    for (double v : head.d_hidden) EXPECT_TRUE(std::isfinite(v));
  }
}

// 32 micro-batches of one row, some of them without any target, are one batch of 32 rows.
TEST(CrossEntropy, MicroBatchesEqualOneBatch) {
  for (bool fast : {true, false}) {
    const Head one = run_head(fast, 32, 12, 50, 0.5, 1), many = run_head(fast, 32, 12, 50, 0.5, 32);
    EXPECT_NEAR(many.loss, one.loss, 1e-6 * one.loss);
    EXPECT_LT(relative_error(many.d_weight, one.d_weight), 1e-6);
    EXPECT_LT(relative_error(many.d_hidden, one.d_hidden), 1e-6);
  }
}

TEST(CrossEntropy, NoTargetAtAllGivesZero) {
  for (bool fast : {true, false}) {
    const ExecResources resources = guarded_resources();
    TestParams params(resources.context);
    const ParamRef weight = params.add(tensor_of(resources.context, {5, 3}, DType::f32, random_values(15, 1)));
    Tape tape;
    const Context ctx(resources.context, &tape);
    const Var hidden = tape.leaf(tensor_of(ctx, {2, 3}, DType::f32, random_values(6, 2)));
    const Tensor targets = ints(ctx, {2}, {-1, -1});
    const Var loss = fast ? ops::cross_entropy(ctx, hidden, weight, targets, 0.5f).loss
                          : ops::sum(ctx, ops::linear_log_prob(ctx, hidden, weight, targets).logp);
    EXPECT_EQ(values_of(loss.value), Values{0.0});
    tape.backward(ctx, loss);
    EXPECT_EQ(values_of(tape.grad(hidden)), Values(6, 0.0));
    EXPECT_EQ(values_of(params.gradient(weight)), Values(15, 0.0));
  }
}

TEST(CrossEntropy, LossMayBeAddedButNotScaled) {
  const ExecResources resources = guarded_resources();
  TestParams params(resources.context);
  const ParamRef weight = params.add(tensor_of(resources.context, {5, 3}, DType::f32, random_values(15, 1)));
  Tape tape;
  const Context ctx(resources.context, &tape);
  const Var hidden = tape.leaf(tensor_of(ctx, {2, 3}, DType::f32, random_values(6, 2)));
  auto loss = [&] { return ops::cross_entropy(ctx, hidden, weight, ints(ctx, {2}, {0, 1}), 0.5f).loss; };
  tape.backward(ctx, ops::add(ctx, loss(), loss()));
  tape.clear();
  const Var again = tape.leaf(hidden.value);
  const Var bad = ops::scale(ctx, ops::cross_entropy(ctx, again, weight, ints(ctx, {2}, {0, 1}), 0.5f).loss, 2);
  const std::string message = error_of(ErrorCode::kInvalidArgument, [&] { tape.backward(ctx, bad); });
  EXPECT_NE(message.find("cross_entropy: its loss reached the root with factor 2"), std::string::npos) << message;
  EXPECT_NE(message.find("linear_log_prob"), std::string::npos) << message;
}

TEST(CrossEntropy, WritesNoGradientWithoutATape) {
  const ExecResources resources = guarded_resources();
  TestParams params(resources.context);
  const Context ctx(resources.context);
  const ParamRef weight = params.add(tensor_of(ctx, {5, 3}, DType::f32, random_values(15, 1)));
  ops::cross_entropy(ctx, Var(tensor_of(ctx, {2, 3}, DType::f32, random_values(6, 2))), weight, ints(ctx, {2}, {0, 1}),
                     1);
  EXPECT_FALSE(params.gradient(weight));
}

TEST(LinearLogProb, ErrorsNameTheShapes) {
  const ExecResources resources = guarded_resources();
  const Context ctx(resources.context);
  TestParams params(ctx);
  const ParamRef weight = params.add(tensor_of(ctx, {5, 3}, DType::f32, random_values(15, 1)));
  const Var x(tensor_of(ctx, {2, 3}, DType::f32, random_values(6, 2))), wrong(ctx.empty({2, 4}, DType::f32));
  auto message = [&](const Var& hidden, const std::vector<int32_t>& targets) {
    const Tensor t = ints(ctx, {static_cast<int64_t>(targets.size())}, targets);
    return error_of(ErrorCode::kInvalidArgument, [&] { ops::linear_log_prob(ctx, hidden, weight, t); });
  };
  EXPECT_EQ(message(wrong, {0, 1}), "linear_log_prob: hidden f32 [2, 4] and weight f32 [5, 3] do not fit");
  EXPECT_EQ(message(x, {0, 1, 2}), "linear_log_prob: hidden [2, 3] needs 2 contiguous targets in i32, got [3]");
  EXPECT_EQ(message(x, {0, 5}), "linear_log_prob: target 5 is outside [-1, 5)");
  EXPECT_EQ(message(x, {0, -2}), "linear_log_prob: target -2 is outside [-1, 5)");
}

}  // namespace
}  // namespace loam::testing
