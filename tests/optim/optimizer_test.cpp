#include "loam/optim/optimizer.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "loam/base/file.h"
#include "loam/base/philox.h"
#include "loam/kernels/kernel_table.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"

namespace loam {
namespace {

// clip_gradients, and the norm that it clipped by.
double clip_norm(ExecContext ctx, const std::vector<OptimGroup>& groups, double max_norm, StepState& state) {
  const Tensor sums = Tensor::zeros(*ctx.arena, {2}, DType::i64);
  ctx.step = &state;
  auto* f64 = static_cast<double*>(sums.view().data);
  clip_gradients(ctx, groups, max_norm, f64);
  return std::sqrt(f64[0]);
}

class OptimizerTest : public ::testing::Test {
 protected:
  OptimizerTest() { ctx.step = &state; }

  Tensor tensor(const std::vector<float>& values) {
    return Tensor::from<float>(*ctx.arena, {static_cast<int64_t>(values.size())}, values);
  }
  Tensor narrow(const std::vector<float>& values, DType dtype = DType::bf16) {
    return visit_float(dtype, "test", [&](auto type) {
      using T = decltype(type);
      const std::vector<T> rounded(values.begin(), values.end());
      return Tensor::from<T>(*ctx.arena, {static_cast<int64_t>(values.size())}, rounded);
    });
  }
  static void set(const Tensor& t, const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), t.data<float>());
  }
  void step(Optimizer& adamw, double lr, int64_t t) {
    adamw.prepare_step(state, lr, t);
    adamw.step(ctx);
  }

  ExecResources resources = testing::test_resources(2);
  ExecContext ctx = resources.context;
  StepState state;
  OptimizerConfig config;  // betas 0.9 and 0.95, eps 1e-8
};

// torch.optim.AdamW (2.11) with lr 0.05, betas (0.9, 0.95), eps 1e-8, weight_decay 0.1.
TEST_F(OptimizerTest, EqualsTorch) {
  const std::vector<std::vector<float>> gradients{
      {0.1f, -0.2f, 0.3f, -0.4f, 0.5f}, {-1.0f, 0.5f, 0.0f, 0.25f, 2.0f}, {0.3f, 0.3f, -0.3f, 1e-4f, -1.5f}};
  const std::vector<std::vector<float>> expected{
      {0.944999993f, -1.94000006f, 0.44749999f, 3.03500009f, -0.298749983f},
      {0.973557949f, -1.95221233f, 0.411330104f, 3.02855301f, -0.340992838f},
      {0.984480381f, -1.97283757f, 0.413565904f, 3.02023745f, -0.348057359f}};
  const std::vector<float> m{-0.0518999957f, 0.0588000007f, -0.00570000196f, -0.00989000313f, 0.0705000013f};
  const std::vector<float> v{0.0524512529f, 0.0181799997f, 0.00856125075f, 0.0101887509f, 0.313781261f};
  OptimGroup group{"group.0", tensor({1.0f, -2.0f, 0.5f, 3.0f, -0.25f}), tensor({0, 0, 0, 0, 0}), 0.1, 1};
  Optimizer adamw(ctx, {group}, config);
  for (size_t t = 0; t < gradients.size(); ++t) {
    set(group.gradient, gradients[t]);
    step(adamw, 0.05, static_cast<int64_t>(t));
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(group.weight.span<float>()[i], expected[t][i], 1e-6) << t << " " << i;
  }
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(adamw.state(0)[0].span<float>()[i], m[i], 1e-7);
    EXPECT_NEAR(adamw.state(0)[1].span<float>()[i], v[i], 1e-7);
  }
}

// The same with gradients as small as eps, where it matters that eps is added after the correction, and with a rate
// that changes from step to step: w.grad = row, param_groups[0]["lr"] = rate, opt.step().
TEST_F(OptimizerTest, EqualsTorchWithTinyGradientsAndAChangingRate) {
  const std::vector<double> rates{0, 0.05, 0.1, 0.02};
  const std::vector<std::vector<float>> gradients{{1e-8f, -3e-8f, 2e-9f, 0.0f},
                                                  {2e-8f, 1e-8f, -5e-9f, 1e-8f},
                                                  {-1e-8f, 4e-8f, 1e-9f, -2e-8f},
                                                  {3e-9f, -2e-8f, 8e-9f, 5e-10f}};
  const std::vector<std::vector<float>> expected{{1.0f, -2.0f, 0.5f, 3.0f},
                                                 {0.965571404f, -1.97607636f, 0.503583252f, 2.96966553f},
                                                 {0.931304276f, -1.97930431f, 0.503821671f, 2.95748496f},
                                                 {0.924856603f, -1.97569263f, 0.50036037f, 2.95414114f}};
  const OptimGroup group{"group.0", tensor({1.0f, -2.0f, 0.5f, 3.0f}), tensor({0, 0, 0, 0}), 0.1, 1};
  Optimizer adamw(ctx, {group}, config);
  for (size_t t = 0; t < gradients.size(); ++t) {
    set(group.gradient, gradients[t]);
    step(adamw, rates[t], static_cast<int64_t>(t));
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(group.weight.span<float>()[i], expected[t][i], 1e-6) << t << " " << i;
  }
}

// The definition in double over 1000 steps, with a decayed and an undecayed group, other rates, and a bf16 group with
// its master.
TEST_F(OptimizerTest, GroupsFollowTheDefinition) {
  constexpr int64_t kSize = 300, kSteps = 1000;
  constexpr double kRate = 1e-2, kBeta1 = 0.9, kBeta2 = 0.95;
  const PhiloxStream random{7, 1};
  std::vector<float> start(kSize);
  for (size_t i = 0; i < kSize; ++i) start[i] = static_cast<float>(random.normal(i));
  const std::vector<float> none(kSize, 0);
  const std::vector<OptimGroup> groups{{"group.0", tensor(start), tensor(none), 0.1, 1},
                                       {"group.1", tensor(start), tensor(none), 0, 0.5},
                                       {"group.2", narrow(start), tensor(none), 0.1, 1}};
  Optimizer adamw(ctx, groups, config);
  std::array<std::vector<double>, 3> w, m, v;
  for (size_t g = 0; g < 3; ++g) {
    for (const float x : start) w[g].push_back(g == 2 ? static_cast<double>(static_cast<float>(Bf16(x))) : x);
    m[g].assign(kSize, 0);
    v[g].assign(kSize, 0);
  }
  for (int64_t t = 0; t < kSteps; ++t) {
    for (size_t g = 0; g < 3; ++g) {
      for (size_t i = 0; i < kSize; ++i) {
        const auto gradient = static_cast<float>(random.normal(1000000 + static_cast<size_t>(t) * kSize + i) * 0.1);
        groups[g].gradient.data<float>()[i] = gradient;
        const double lr = kRate * groups[g].lr_scale, d = gradient;
        m[g][i] = kBeta1 * m[g][i] + (1 - kBeta1) * d;
        v[g][i] = kBeta2 * v[g][i] + (1 - kBeta2) * d * d;
        const double m_hat = m[g][i] / (1 - std::pow(kBeta1, t + 1));
        const double v_hat = v[g][i] / (1 - std::pow(kBeta2, t + 1));
        w[g][i] -= lr * groups[g].weight_decay * w[g][i] + lr * m_hat / (std::sqrt(v_hat) + 1e-8);
      }
    }
    step(adamw, kRate, t);
  }
  for (size_t g = 0; g < 3; ++g) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < kSize; ++i) {
      const double d = adamw.master(g).span<float>()[i] - w[g][i];
      difference += d * d;
      norm += w[g][i] * w[g][i];
    }
    // Each step rounds the weight and the factor of its decay, half a unit in the last place at worst.
    EXPECT_LT(std::sqrt(difference / norm), kSteps * 0x1p-24) << "group " << g;
  }
  for (size_t i = 0; i < kSize; ++i) {
    EXPECT_EQ(groups[2].weight.span<Bf16>()[i].bits, Bf16(adamw.master(2).span<float>()[i]).bits);
  }
  EXPECT_EQ(adamw.master(0).storage(), groups[0].weight.storage());  // f32 weights are their own master
}

// Weights of 1000 steps of torch and of formulas in float64: tests/fixtures/make_optimizer_fixture.py, which says what
// the gradients are.
class OptimizerFixtureTest : public OptimizerTest {
 protected:
  static Json fixture() {
    const std::string path = testing::source_path("tests/fixtures/optimizers.json");
    return Json::parse(read_file(path), path);
  }
  static std::vector<double> numbers(const Json& list) {
    std::vector<double> values;
    for (const Json& value : list.as_array()) values.push_back(value.as_double());
    return values;
  }
  static double noise(int64_t step, int64_t i) {
    const uint64_t key = static_cast<uint64_t>(7919 * step + 104729 * i + 12345) * 2654435761u;
    return static_cast<double>(key & 0xFFFFFFFFu) / 0x1p32 - 0.5;
  }
  template <class T>
  void expect_masters_of();
  // The matrices as one group, the vector as another.
  std::vector<OptimGroup> groups_of(const std::vector<double>& start, const Json& shapes, DType dtype) {
    OptimGroup matrices, vector;
    std::vector<float> values(start.begin(), start.end());
    int64_t begin = 0;
    for (const Json& shape : shapes.as_array()) {
      if (shape.as_array().size() != 2) break;
      const int64_t rows = shape.as_array()[0].as_int(), cols = shape.as_array()[1].as_int();
      matrices.matrices.push_back({begin, rows, cols});
      begin += rows * cols;
    }
    const auto fill = [&](OptimGroup& group, const char* name, auto first, auto last) {
      const std::vector<float> part(first, last);
      group.name = name;
      group.weight = narrow(part, dtype);
      group.gradient = tensor(std::vector<float>(part.size(), 0));
    };
    fill(matrices, "group.0", values.begin(), values.begin() + begin);
    fill(vector, "group.1", values.begin() + begin, values.end());
    matrices.weight_decay = config.weight_decay;
    vector.weight_decay = config.kind == OptimizerKind::muon ? config.weight_decay_vectors : config.weight_decay;
    for (const OptimizerGroupConfig& own : config.groups) {
      OptimGroup& group = own.match == "matrix" ? matrices : vector;
      group.lr_scale = own.lr_scale;
      group.weight_decay = own.weight_decay.value_or(group.weight_decay);
      group.rule = rule_settings(config, own);
    }
    return {matrices, vector};
  }
  static std::vector<double> masters(const Optimizer& optimizer) {
    std::vector<double> all;
    for (size_t g = 0; g < optimizer.groups().size(); ++g) {
      for (const float w : optimizer.master(g).span<float>()) all.push_back(w);
    }
    return all;
  }
  void one_step(Optimizer& optimizer, int64_t t) {
    int64_t i = 0;
    for (size_t g = 0; g < optimizer.groups().size(); ++g) {
      float* gradient = optimizer.groups()[g].gradient.data<float>();
      for (const float value : optimizer.master(g).span<float>()) {
        const double w = value;
        *gradient++ = static_cast<float>(0.2 * (w - 0.3) + 0.1 * w * w * w + 0.5 * noise(t, i++));
      }
    }
    step(optimizer, config.lr, t);
  }
};

TEST_F(OptimizerFixtureTest, EveryRuleEqualsTorchOrItsPaperOver1000Steps) {
  const Json all = fixture();
  std::set<OptimizerKind> kinds;
  for (const Json& one : all.at("cases").as_array()) {
    SCOPED_TRACE(one.at("config").dump());
    config = {};
    config_from_json(config, one.at("config"));
    kinds.insert(config.kind);
    Optimizer optimizer(ctx, groups_of(numbers(all.at("start")), all.at("shapes"), DType::f32), config);
    for (int64_t t = 0; t < 1000; ++t) {
      one_step(optimizer, t);
      const Json* saved = one.at("weights").find(std::to_string(t + 1));
      if (!saved) continue;
      const std::vector<double> found = masters(optimizer), expected = numbers(*saved);
      ASSERT_EQ(found.size(), expected.size());
      double difference = 0, norm = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
      }
      // Each step rounds the weight, half a unit in the last place at worst; what gradient and state are off is less,
      // for the pull of the minimum forgets it.
      EXPECT_LT(std::sqrt(difference / norm), static_cast<double>(t + 2) * 0x1p-24) << "after step " << t + 1;
    }
  }
  EXPECT_EQ(kinds.size(), 7u);
}

// The masters of weights of 16 bits take the same way as f32 weights from the same start.
template <class T>
void OptimizerFixtureTest::expect_masters_of() {
  const Json all = fixture();
  std::vector<double> start = numbers(all.at("start"));
  for (double& w : start) w = static_cast<double>(static_cast<float>(T(static_cast<float>(w))));
  for (const Json& one : all.at("cases").as_array()) {
    SCOPED_TRACE(one.at("config").dump());
    config = {};
    config_from_json(config, one.at("config"));
    Optimizer wide(ctx, groups_of(start, all.at("shapes"), DType::f32), config);
    Optimizer narrow(ctx, groups_of(start, all.at("shapes"), DTypeOf<T>::value), config);
    for (int64_t t = 0; t < 5; ++t) {
      one_step(wide, t);
      one_step(narrow, t);
    }
    EXPECT_EQ(masters(narrow), masters(wide));
    for (size_t g = 0; g < 2; ++g) {
      for (size_t i = 0; i < narrow.master(g).span<float>().size(); ++i) {
        ASSERT_EQ(narrow.groups()[g].weight.span<T>()[i].bits, T(narrow.master(g).span<float>()[i]).bits);
      }
    }
  }
}
TEST_F(OptimizerFixtureTest, EveryRuleKeepsMastersOfBf16Weights) { expect_masters_of<Bf16>(); }
TEST_F(OptimizerFixtureTest, EveryRuleKeepsMastersOfF16Weights) { expect_masters_of<F16>(); }

// No state of any rule moves in a step that is skipped.
TEST_F(OptimizerFixtureTest, EveryRuleSkips) {
  const Json all = fixture();
  for (const Json& one : all.at("cases").as_array()) {
    SCOPED_TRACE(one.at("config").dump());
    config = {};
    config_from_json(config, one.at("config"));
    Optimizer optimizer(ctx, groups_of(numbers(all.at("start")), all.at("shapes"), DType::f32), config);
    one_step(optimizer, 0);
    std::vector<std::vector<float>> before, after;
    const auto put_down = [&](std::vector<std::vector<float>>& to) {
      for (size_t g = 0; g < 2; ++g) {
        EXPECT_EQ(optimizer.state(g).size(), optimizer.state_names(g).size());
        to.emplace_back(optimizer.master(g).span<float>().begin(), optimizer.master(g).span<float>().end());
        for (const Tensor& kept : optimizer.state(g))
          to.emplace_back(kept.span<float>().begin(), kept.span<float>().end());
      }
    };
    put_down(before);
    optimizer.prepare_step(state, config.lr, 1);
    state.skip = 1;
    optimizer.step(ctx);
    put_down(after);
    EXPECT_EQ(after, before);
  }
}

// What a skipped step would compute is not computed.
TEST_F(OptimizerTest, ASkippedStepMakesNoProducts) {
  KernelTable table = *ctx.kernels;
  table.orthogonalize.function = [](const ExecContext&, const OrthogonalizeArgs&) { FAIL() << "products"; };
  ctx.kernels = &table;
  config.kind = OptimizerKind::muon;
  Optimizer muon(ctx, {{"group.0", tensor({1, 2, 3, 4}), tensor({1, 2, -1, 3}), 0, 1, {{0, 2, 2}}}}, config);
  muon.prepare_step(state, 0.1, 0);
  state.skip = 1;
  muon.step(ctx);
}

// The first step by the formula of torch.optim.AdamW is as long as the rate, however near to 1 beta2 is: 1 - beta2 must
// not come from beta2 in f32.
TEST_F(OptimizerTest, SharesNearOneKeepTheirDigits) {
  for (const double beta : {0.9999, 0.9999999}) {
    config.beta1 = 0.9, config.beta2 = beta;
    const OptimGroup group{"group.0", tensor({0, 0}), tensor({0.5f, -3}), 0, 1};
    Optimizer adamw(ctx, {group}, config);
    step(adamw, 1e-2, 0);
    EXPECT_NEAR(adamw.state(0)[1].span<float>()[0] / ((1 - beta) * 0.25), 1, 1e-6);
    EXPECT_NEAR(group.weight.span<float>()[0], -1e-2, 1e-8);
    EXPECT_NEAR(group.weight.span<float>()[1], 1e-2, 1e-8);
    OptimizerConfig lion = config;
    lion.kind = OptimizerKind::lion;
    Optimizer other(ctx, {group}, lion);
    step(other, 1e-2, 0);
    EXPECT_NEAR(other.state(0)[0].span<float>()[0] / ((1 - beta) * 0.5), 1, 1e-6);
  }
}

TEST_F(OptimizerTest, NamesOfStateAreThoseOfCheckpoints) {
  const OptimGroup vector{"group.0", tensor({1, 2}), tensor({0, 0}), 0, 1};
  const OptimGroup matrix{"group.1", tensor({1, 2}), tensor({0, 0}), 0, 1, {{0, 1, 2}}};
  using Names = std::vector<std::string>;
  const auto names = [&](const OptimGroup& group) { return Optimizer(ctx, {group}, config).state_names(0); };
  const std::vector<std::tuple<OptimizerKind, double, Names, Names>> cases{
      {OptimizerKind::adamw, 0, {"m", "v"}, {"m", "v"}},
      {OptimizerKind::adam, 0, {"m", "v"}, {"m", "v"}},
      {OptimizerKind::sgd, 0, {}, {}},
      {OptimizerKind::sgd, 0.9, {"momentum"}, {"momentum"}},
      {OptimizerKind::adagrad, 0, {"sum"}, {"sum"}},
      {OptimizerKind::rmsprop, 0, {"v"}, {"v"}},
      {OptimizerKind::rmsprop, 0.9, {"v", "momentum"}, {"v", "momentum"}},
      {OptimizerKind::lion, 0, {"m"}, {"m"}},
      {OptimizerKind::muon, 0, {"m", "v"}, {"momentum"}}};
  for (const auto& [kind, momentum, of_vector, of_matrix] : cases) {
    config.kind = kind, config.momentum = momentum;
    EXPECT_EQ(names(vector), of_vector);
    EXPECT_EQ(names(matrix), of_matrix);
  }
}

// Rates of groups, under Muon on top of its own: a step without decay is as long as its rate is high.
TEST_F(OptimizerTest, MuonsRateIsScaledByTheGroup) {
  config.kind = OptimizerKind::muon;
  config.lr = 0.01, config.muon_lr = 0.04;
  const auto length = [&](double lr_scale, double rate) {
    const OptimGroup group{"group.0", tensor({0, 0, 0, 0}), tensor({1, 2, -1, 3}), 0, lr_scale, {{0, 2, 2}}};
    Optimizer muon(ctx, {group}, config);
    step(muon, rate, 0);
    double sum = 0;
    for (const float w : group.weight.span<float>()) sum += w * w;
    return std::sqrt(sum);
  };
  const double whole = length(1, 0.01);
  EXPECT_NEAR(length(0.5, 0.01), 0.5 * whole, 1e-6 * whole);
  EXPECT_NEAR(length(1, 0.005), 0.5 * whole, 1e-6 * whole);  // the schedule
  config.muon_lr = 0;
  EXPECT_NEAR(length(1, 0.01), 0.25 * whole, 1e-6 * whole);
}

TEST_F(OptimizerTest, MastersGoBackToTheWeights) {
  const OptimGroup group{"group.0", narrow({1, 2, 3}), tensor({0, 0, 0}), 0, 1};
  Optimizer adamw(ctx, {group}, config);
  set(adamw.master(0), {1.001f, -7.3f, 0});
  adamw.masters_to_weights(ctx);
  EXPECT_EQ(group.weight.span<Bf16>()[0].bits, Bf16(1.001f).bits);
  EXPECT_EQ(group.weight.span<Bf16>()[1].bits, Bf16(-7.3f).bits);
}

TEST_F(OptimizerTest, ClipsByOneNormOverAllGroups) {
  const std::vector<OptimGroup> groups{{"group.0", tensor({0, 0}), tensor({3, 0}), 0, 1},
                                       {"group.1", tensor({0}), tensor({-4}), 0, 1}};
  const Optimizer adamw(ctx, groups, config);
  adamw.prepare_step(state, 1, 0);
  EXPECT_FLOAT_EQ(clip_norm(ctx, groups, 2.5, state), 5);
  EXPECT_FLOAT_EQ(state.gradient_scale, static_cast<float>(2.5 / (5 + 1e-6)));
  EXPECT_EQ(state.skip, 0);
  adamw.prepare_step(state, 1, 1);
  EXPECT_FLOAT_EQ(clip_norm(ctx, groups, 10, state), 5);  // small enough: untouched
  EXPECT_EQ(state.gradient_scale, 1);
  EXPECT_FLOAT_EQ(clip_norm(ctx, groups, 0, state), 5);  // no clipping
  EXPECT_EQ(state.gradient_scale, 1);
}

// The sum of squares lies beyond f32, and the second group is lost if the sum is rounded to f32 between the groups.
TEST_F(OptimizerTest, TheNormIsSummedInDouble) {
  const std::vector<OptimGroup> large{{"group.0", tensor({0, 0}), tensor({3e25f, 4e25f}), 0, 1}};
  const Optimizer adamw(ctx, large, config);
  adamw.prepare_step(state, 1, 0);
  EXPECT_NEAR(clip_norm(ctx, large, 1, state) / 5e25, 1, 1e-6);
  EXPECT_EQ(state.skip, 0);
  EXPECT_NEAR(state.gradient_scale * 5e25, 1, 1e-6);
  std::vector<OptimGroup> many{{"group.0", tensor({0}), tensor({1}), 0, 1}};
  for (int i = 1; i <= 100; ++i) many.push_back({fmt::format("group.{}", i), tensor({0}), tensor({0x1p-13f}), 0, 1});
  EXPECT_NEAR(clip_norm(ctx, many, 0, state), std::sqrt(1 + 100 * 0x1p-26), 1e-15);
}

TEST_F(OptimizerTest, AClippedStepIsTheStepOfTheScaledGradient) {
  const OptimGroup clipped{"group.0", tensor({1, 1}), tensor({30, 40}), 0.1, 1};
  const OptimGroup scaled{"group.0", tensor({1, 1}), tensor({0.6f, 0.8f}), 0.1, 1};
  Optimizer a(ctx, {clipped}, config), b(ctx, {scaled}, config);
  a.prepare_step(state, 0.1, 0);
  clip_norm(ctx, a.groups(), 1, state);
  a.step(ctx);
  step(b, 0.1, 0);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(clipped.weight.span<float>()[i], scaled.weight.span<float>()[i], 1e-6);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(a.state(0)[1].span<float>()[i], b.state(0)[1].span<float>()[i], 1e-6);
}

TEST_F(OptimizerTest, ANonFiniteGradientChangesNothing) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const OptimGroup good{"group.0", tensor({1, 2}), tensor({1, 1}), 0.1, 1};
    const OptimGroup broken{"group.1", tensor({3}), tensor({bad}), 0.1, 1};
    Optimizer adamw(ctx, {good, broken}, config);
    adamw.prepare_step(state, 0.1, 0);
    EXPECT_FALSE(std::isfinite(clip_norm(ctx, adamw.groups(), 1, state)));
    EXPECT_EQ(state.skip, 1);
    adamw.step(ctx);
    EXPECT_EQ(good.weight.span<float>()[0], 1);
    EXPECT_EQ(good.weight.span<float>()[1], 2);
    EXPECT_EQ(broken.weight.span<float>()[0], 3);
    EXPECT_EQ(adamw.state(0)[0].span<float>()[0], 0);
    adamw.prepare_step(state, 0.1, 1);
    EXPECT_EQ(state.skip, 0);  // the next step is a new chance
  }
}

TEST_F(OptimizerTest, RefusesGroupsThatDoNotFit) {
  const OptimGroup uneven{"group.3", tensor({1, 2}), tensor({1}), 0, 1};
  EXPECT_LOAM_ERROR(Optimizer(ctx, {uneven}, config), ErrorCode::kInvalidArgument, "group.3");
  const OptimGroup none{"group.4", tensor({1, 2}), Tensor(), 0, 1};
  EXPECT_LOAM_ERROR(Optimizer(ctx, {none}, config), ErrorCode::kInvalidArgument, "group.4");
}

}  // namespace
}  // namespace loam
