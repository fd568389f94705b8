// Maximal update parametrisation by the sign that its authors name ("coordinate check", Yang et al. 2022, appendix
// D.1): after some steps of Adam at one rate, activations of any width have moved by as much. In the standard
// parametrisation they move the more, the wider the model.
#include <gtest/gtest.h>

#include <cmath>

#include "loam/nn/sequence.h"
#include "loam/train/trainer.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

struct Activations {
  std::vector<float> residual, logits;
};

Activations activations_of(const ExecContext& exec, const Transformer& transformer) {
  const Context ctx(exec);
  constexpr int64_t kLength = 24;
  std::vector<int32_t> ids, positions;
  for (int32_t t = 0; t < kLength; ++t) {
    ids.push_back(t * 7 % 60);
    positions.push_back(t);
  }
  const Tensor row = Tensor::from<int32_t>(*exec.arena, {1, kLength}, ids);
  FullSequence sequence(Tensor::from<int32_t>(*exec.arena, {1, kLength}, positions), {});
  Var x = transformer.embed(ctx, row, sequence);
  for (int layer = 0; layer < static_cast<int>(transformer.layers()); ++layer) {
    x = transformer.block(ctx, layer, x, sequence);
  }
  const Tensor hidden = transformer.final_norm(ctx, x).value;
  const Tensor logits = transformer.logits(ctx, hidden.reshape({kLength, transformer.config().dim}));
  const auto residual = x.value.span<float>(), l = logits.span<float>();
  return {{residual.begin(), residual.end()}, {l.begin(), l.end()}};
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

class CoordinateCheck : public ::testing::Test {
 protected:
  CoordinateCheck() { testing::write_data(directory_.path()); }

  struct Moved {
    double residual, logits;
  };
  Moved moved(int64_t width, int64_t base) {
    TrainConfig config = testing::tiny_config();
    config.model.dim = width;
    config.model.heads = config.model.kv_heads = width / 16;  // heads of one size: their scores stay as they are
    config.model.tied_embeddings = false;
    config.model.mup_base_dim = base;
    config.model.scaled_residual_init = false;
    config.optimizer.lr = 4e-3;
    config.optimizer.schedule = ScheduleKind::constant;
    config.optimizer.warmup_steps = 0;
    config.optimizer.weight_decay = 0;
    config = derive(config);
    const ExecResources resources = testing::test_resources(2);
    Trainer trainer(resources.context, config, std::make_shared<TokenSet>(directory_ / "train"), nullptr);
    const Activations before = activations_of(resources.context, *trainer.model().transformer);
    for (int step = 0; step < 4; ++step) trainer.step();
    const Activations after = activations_of(resources.context, *trainer.model().transformer);
    return {distance(after.residual, before.residual), distance(after.logits, before.logits)};
  }

  testing::TempDir directory_;
};

TEST_F(CoordinateCheck, ActivationsMoveAsMuchAtAnyWidth) {
  const Moved base = moved(64, 64);
  Moved standard = moved(64, 0);
  EXPECT_EQ(standard.residual, base.residual);
  EXPECT_EQ(standard.logits, base.logits);
  for (int64_t width : {128, 256, 512}) {
    SCOPED_TRACE(width);
    const Moved scaled = moved(width, 64), wider = moved(width, 0);
    EXPECT_LT(std::abs(std::log2(scaled.residual / base.residual)), 1);  // within a factor of 2
    EXPECT_LT(std::abs(std::log2(scaled.logits / base.logits)), 1);
    EXPECT_GT(wider.residual, 2 * standard.residual);
    EXPECT_GT(wider.logits, 1.3 * standard.logits);
    standard = wider;
  }
}

}  // namespace
}  // namespace loam
