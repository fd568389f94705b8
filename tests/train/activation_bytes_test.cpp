#include <gtest/gtest.h>

#include "loam/train/trainer.h"
#include "tests/harness/sanitizers.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

// What the arena's peak holds beyond the state that stays.
int64_t measured_bytes(const TrainConfig& config, const Path& data) {
  const ExecResources resources = make_exec_resources(Device{}, 2);
  Trainer trainer(resources.context, config, std::make_shared<TokenSet>(data), nullptr);
  trainer.step();
  const int64_t kept = resources.arena->stats().total;
  resources.arena->reset_peak();
  trainer.step();
  return resources.arena->stats().total_peak - kept;
}

TEST(ActivationBytes, EstimateIsWithinATenthOfTheMeasuredPeak) {
  const testing::TempDir directory;
  testing::write_set(directory / "data", testing::documents(400, 1), 8192);
  TrainConfig llama;  // blocks outweigh the head
  llama.model.vocab_size = 512;
  llama.model.layers = 6;
  llama.model.dim = 128;
  llama.model.heads = 4;
  llama.model.kv_heads = 2;
  llama.batch = llama.micro_batch = 4;
  TrainConfig gpt2 = llama;  // the other form, in bf16, and a vocabulary that outweighs the blocks
  gpt2.model.vocab_size = 8192;
  gpt2.model.layers = 2;
  gpt2.model.norm = NormKind::layer;
  gpt2.model.activation = ActivationKind::gelu_tanh;
  gpt2.model.gated = false;
  gpt2.model.positions = PositionKind::learned;
  gpt2.model.attention_bias = gpt2.model.attention_out_bias = gpt2.model.mlp_bias = gpt2.model.norm_bias = true;
  gpt2.dtype = ComputeDtype::bf16;
  gpt2.batch = 8;
  llama.data.length = gpt2.data.length = testing::kSanitized ? 64 : 128;
  testing::write_set(directory / "small", testing::documents(400, 1), 512);
  for (const auto& [config, data] : {std::pair(llama, "small"), std::pair(gpt2, "data")}) {
    const TrainConfig derived = derive(config);
    const auto measured = static_cast<double>(measured_bytes(derived, directory / data));
    const auto estimated = static_cast<double>(Trainer::activation_bytes(derived));
    EXPECT_NEAR(estimated, measured, 0.1 * measured) << data;
  }
}

TEST(ActivationBytes, SizesThatNoMachineHasDoNotOverflow) {
  TrainConfig config;
  config.model.vocab_size = config.model.context_length = 1 << 24;
  config.model.layers = config.model.heads = 4096;
  config.model.dim = config.model.ffn_dim = 1 << 20;
  config.steps = 1;
  config.batch = 1 << 24;
  config = derive(config);
  const RunPlan plan = Trainer::plan(config, 1);
  // The residual stream alone: rows x length x width x layers x 4 bytes, far beyond 2^60.
  EXPECT_GE(plan.activation_bytes, int64_t{1} << 60);
  EXPECT_GT(plan.total_bytes(), plan.activation_bytes);
}

}  // namespace
}  // namespace loam
