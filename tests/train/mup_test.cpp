// Maximal update parametrisation by the sign that its authors name (Yang et al. 2022, "Tensor Programs V", arXiv
// 2203.03466, appendix D.1, "coordinate check"): after each of the first steps of Adam at one rate, what every kind of
// layer gives has moved by as much at any width. In the standard parametrisation what hidden layers and the head give
// moves in proportion to the width, or more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "loam/nn/sequence.h"
#include "loam/ops/linear.h"
#include "loam/ops/norm.h"
#include "loam/train/trainer.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

using Activations = std::map<std::string, std::vector<float>>;

std::vector<float> difference(const Tensor& a, const Tensor& b) {
  std::vector<float> values;
  for (int64_t i = 0; i < a.numel(); ++i) values.push_back(a.data<float>()[i] - b.data<float>()[i]);
  return values;
}

// What each matrix gives of one row of tokens, those of the last block for all blocks.
Activations activations_of(const ExecContext& exec, Model& model) {
  constexpr int64_t kLength = 24;
  const Context ctx(exec);
  const Transformer& transformer = *model.transformer;
  std::vector<int32_t> ids, positions;
  for (int32_t t = 0; t < kLength; ++t) {
    ids.push_back(t * 7 % 60);
    positions.push_back(t);
  }
  const Tensor row = Tensor::from<int32_t>(*exec.arena, {1, kLength}, ids);
  FullSequence sequence(Tensor::from<int32_t>(*exec.arena, {1, kLength}, positions), {});
  const auto last = static_cast<int>(transformer.layers()) - 1;
  const auto param = [&](const char* name) { return model.weights->find(fmt::format("layers.{}.{}", last, name)); };
  const auto values = [](const Var& x) {
    return std::vector<float>(x.value.span<float>().begin(), x.value.span<float>().end());
  };
  const auto behind_norm = [&](const char* norm, const char* matrix, const Var& x) {
    const Var normed = ops::rms_norm(ctx, x, param(norm), static_cast<float>(model.config().norm_eps));
    return values(ops::linear(ctx, normed, param(matrix)));
  };

  Activations all;
  Var x = transformer.embed(ctx, row, sequence);
  all["embedding"] = values(x);
  for (int layer = 0; layer < last; ++layer) x = transformer.block(ctx, layer, x, sequence);
  all["attention.qkv"] = behind_norm("attention_norm.weight", "attention.qkv", x);
  const auto down = model.weights->value(param("mlp.down").index).span<float>();
  const std::vector<float> kept(down.begin(), down.end());
  std::fill(down.begin(), down.end(), 0.0f);  // a block of attention alone
  const Var mixed = transformer.block(ctx, last, x, sequence);
  std::copy(kept.begin(), kept.end(), down.begin());
  all["attention.out"] = difference(mixed.value, x.value);
  all["mlp.up"] = behind_norm("mlp_norm.weight", "mlp.up", mixed);
  const Var whole = transformer.block(ctx, last, x, sequence);
  all["mlp.down"] = difference(whole.value, mixed.value);
  const Tensor hidden = transformer.final_norm(ctx, whole).value;
  all["head"] = values(Var(transformer.logits(ctx, hidden.reshape({kLength, model.config().dim}))));
  return all;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

class CoordinateCheck : public ::testing::Test {
 protected:
  static constexpr int64_t kBase = 64, kStandard = 0;
  CoordinateCheck() { testing::write_data(directory_.path()); }

  // The root mean square of what each kind of layer has moved by since the start, after each step.
  using Moved = std::map<std::string, std::vector<double>>;
  Moved moved(int64_t width, int64_t base) {
    constexpr int kSteps = 4;
    TrainConfig config = testing::tiny_config();
    config.model.dim = width;
    config.model.heads = config.model.kv_heads = width / 16;  // heads of one size: their scores stay as they are
    config.model.tied_embeddings = false;
    config.model.mup_base_dim = base;
    config.model.scaled_residual_init = false;
    config.optimizer.lr = 1e-3;
    config.optimizer.schedule = ScheduleKind::constant;
    config.optimizer.warmup_steps = 0;
    config.optimizer.weight_decay = 0;
    config = derive(config);
    const ExecResources resources = testing::test_resources(2);
    Trainer trainer(resources.context, config, std::make_shared<TokenSet>(directory_ / "train"), nullptr);
    const Activations before = activations_of(resources.context, trainer.model());
    Moved all;
    for (int step = 0; step < kSteps; ++step) {
      trainer.step();
      for (const auto& [kind, after] : activations_of(resources.context, trainer.model())) {
        all[kind].push_back(distance(after, before.at(kind)));
      }
    }
    return all;
  }

  testing::TempDir directory_;
};

TEST_F(CoordinateCheck, WhatALayerGivesMovesAsMuchAtAnyWidth) {
  EXPECT_EQ(moved(kBase, kBase), moved(kBase, kStandard));
  // Over a width 4 times as large: halfway between no dependence on the width and proportion to it.
  constexpr int64_t kWider = 4;
  constexpr double kHalfway = 2;
  for (int64_t width : {kBase, 2 * kBase}) {
    Moved scaled = moved(width, kBase), scaled_wide = moved(kWider * width, kBase);
    Moved standard = moved(width, kStandard), standard_wide = moved(kWider * width, kStandard);
    for (const auto& [kind, steps] : scaled) {
      for (size_t step = 0; step < steps.size(); ++step) {
        SCOPED_TRACE(fmt::format("{} at width {} after {} steps", kind, width, step + 1));
        const double growth = scaled_wide[kind][step] / steps[step];
        EXPECT_GT(growth, 1 / kHalfway);
        EXPECT_LT(growth, kHalfway);
        const double standard_growth = standard_wide[kind][step] / standard[kind][step];
        if (kind == "embedding") {  // whose update does not depend on the width in either
          EXPECT_LT(std::abs(std::log(standard_growth)), std::log(kHalfway));
        } else {
          EXPECT_GT(standard_growth, kHalfway);
        }
      }
    }
  }
}

}  // namespace
}  // namespace loam
