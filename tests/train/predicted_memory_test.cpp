#include <gtest/gtest.h>

#include "loam/kernels/counting_context.h"
#include "loam/train/trainer.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/sanitizers.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

Device device_under_test() { return testing::on_cuda() ? Device{DeviceKind::cuda, 0} : Device{}; }

// The arena's peak over three real steps (a GPU replays the third), the state that stays included.
int64_t measured_peak(const TrainConfig& config, const Path& data) {
  const ExecResources resources = make_exec_resources(device_under_test(), 2);
  Trainer trainer(resources.context, config, std::make_shared<TokenSet>(data), nullptr);
  for (int step = 0; step < 3; ++step) trainer.step();
  return resources.arena->stats().total_peak;
}

TrainConfig base_config() {
  TrainConfig config;
  config.model.vocab_size = 512;
  config.model.context_length = 128;
  config.model.layers = 4;
  config.model.dim = 128;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.batch = 8;
  config.micro_batch = 4;
  config.data.length = testing::kSanitized ? 64 : 128;
  return config;
}

struct Case {
  const char* name;
  std::vector<std::string> settings;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class PredictedMemoryTest : public ::testing::TestWithParam<Case> {};

TEST_P(PredictedMemoryTest, IsWithinFivePercentOfTheMeasuredPeak) {
  const testing::TempDir directory;
  testing::write_set(directory / "data", testing::documents(400, 1), 512);
  TrainConfig config = base_config();
  for (const std::string& setting : GetParam().settings) config_set(config, setting);
  config = derive(config);
  const ExecResources resources = make_exec_resources(device_under_test(), 2);
  const PredictedMemory predicted = predict_memory(resources.context, config);
  const auto measured = static_cast<double>(measured_peak(config, directory / "data"));
  EXPECT_NEAR(static_cast<double>(predicted.total()), measured, 0.05 * measured);
  EXPECT_EQ(resources.arena->stats().total_peak, 0);  // nothing was taken for it
}

INSTANTIATE_TEST_SUITE_P(
    Configurations, PredictedMemoryTest,
    ::testing::Values(
        Case{"llama", {}}, Case{"bf16", {"dtype=bf16"}}, Case{"plain_mlp", {"model.gated=false"}},
        Case{"layer_norm", {"model.norm=layer", "model.norm_bias=true"}},
        Case{"learned_positions", {"model.positions=learned"}}, Case{"no_positions", {"model.positions=none"}},
        Case{"biases", {"model.attention_bias=true", "model.attention_out_bias=true", "model.mlp_bias=true"}},
        Case{"untied", {"model.tied_embeddings=false"}}, Case{"large_vocabulary", {"model.vocab_size=16384"}},
        Case{"large_vocabulary_bf16", {"model.vocab_size=16384", "dtype=bf16"}}, Case{"one_row", {"micro_batch=1"}},
        Case{"small_part_of_a_large_batch", {"batch=64", "micro_batch=1", "model.layers=1"}},
        Case{"odd_sizes",
             {"model.dim=104", "model.heads=1", "model.kv_heads=1", "model.ffn_dim=187", "data.length=57", "batch=6",
              "micro_batch=3"}},
        Case{"whole_batch", {"micro_batch=8"}}, Case{"many_rows", {"batch=32", "micro_batch=32"}},
        Case{"no_documents", {"data.mask_documents=false"}},
        Case{"wide", {"model.layers=1", "model.dim=512", "model.heads=8"}},
        Case{"deep", {"model.layers=12", "model.dim=64"}}, Case{"wide_ffn", {"model.ffn_dim=1024"}},
        Case{"all_heads", {"model.kv_heads=4"}}, Case{"one_kv_head", {"model.kv_heads=1"}},
        Case{"relu_squared", {"model.gated=false", "model.activation=relu_squared"}},
        Case{"interleaved", {"model.rope_pairs=interleaved"}}, Case{"exact", {"numerics=exact"}},
        Case{"sandwich", {"model.norm_place=sandwich"}}, Case{"post_norm", {"model.norm_place=post"}},
        Case{"parallel", {"model.block=parallel"}}, Case{"qk_norm", {"model.qk_norm=head"}},
        Case{"softcaps", {"model.attention_softcap=50", "model.logit_softcap=30"}},
        Case{"dropout", {"model.dropout=0.1", "model.attention_dropout=0.1"}}, Case{"alibi", {"model.positions=alibi"}},
        Case{"sinusoids", {"model.positions=sinusoidal"}},
        Case{"window", {"model.window=32", "model.attention_spans=[\"window\",\"full\"]"}},
        Case{"z_loss", {"z_loss=1e-4"}}, Case{"sgd", {"optimizer.kind=sgd"}}, Case{"lion", {"optimizer.kind=lion"}},
        Case{"adagrad", {"optimizer.kind=adagrad"}}, Case{"muon", {"optimizer.kind=muon"}},
        Case{"muon_bf16", {"optimizer.kind=muon", "dtype=bf16"}},
        Case{"deterministic_bf16", {"numerics=deterministic", "dtype=bf16"}}, Case{"details", {"detail_every=1"}},
        Case{"details_bf16", {"detail_every=2", "dtype=bf16"}}, Case{"blocks_again", {"recompute.groups=[1]"}},
        Case{"blocks_again_bf16", {"recompute.groups=[1]", "dtype=bf16"}},
        Case{"groups_again", {"model.layers=12", "model.dim=64", "recompute.groups=[4]"}},
        Case{"nested_groups_again", {"model.layers=12", "model.dim=64", "recompute.groups=[6,2]"}},
        Case{"attention_again", {"recompute.part=attention"}}, Case{"mlp_again", {"recompute.part=mlp"}},
        Case{"all_again_with_details", {"recompute.groups=[2,1]", "recompute.part=both", "detail_every=1"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

// A micro-batch of more rows than are run: each further row takes what the one before it took.
TEST(PredictedMemory, ManyRowsAreCountedWithoutBeingRun) {
  const ExecResources resources = make_exec_resources(Device{}, 2);
  TrainConfig config = base_config();
  const auto activations = [&](int64_t rows) {
    config.batch = config.micro_batch = rows;
    return static_cast<double>(predict_memory(resources.context, derive(config)).activations);
  };
  // 2^20 tokens are run; 4 and 8 times as many are not.
  const int64_t rows = (int64_t{1} << 20) / config.data.length;
  const double one = activations(rows), four = activations(4 * rows), eight = activations(8 * rows);
  EXPECT_NEAR((eight - four) / (4 * one), 1, 0.01);
  EXPECT_NEAR((four - one) / (3 * one), 1, 0.01);
}

// A plan for a GPU that is not there: what is counted is that of the CPU, but for the logits and what kernels work in.
// (Where little is kept, as under recompute, these decide where the peak is, and the plans differ.)
TEST(PredictedMemory, CountsForAGpuThatIsNotThere) {
  const ExecResources cpu = make_counting_resources(Device{}, 2);
  ExecResources gpu;
  try {
    gpu = make_counting_resources({DeviceKind::cuda, 0});
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  for (const char* setting : {"dtype=f32", "dtype=bf16", "optimizer.kind=muon", "model.norm=layer", "detail_every=1"}) {
    SCOPED_TRACE(setting);
    TrainConfig config = base_config();
    config.batch = config.micro_batch = 64;
    config.dtype = ComputeDtype::f32;
    config_set(config, setting);
    config = derive(config);
    const PredictedMemory here = predict_memory(cpu.context, config), there = predict_memory(gpu.context, config);
    EXPECT_EQ(there.weights, here.weights);
    EXPECT_EQ(there.gradients, here.gradients);
    EXPECT_EQ(there.moments, here.moments);
    EXPECT_NEAR(static_cast<double>(there.activations) / static_cast<double>(here.activations), 1, 0.05);
    EXPECT_GE(there.workspace, int64_t{32} << 20);
  }
}

TEST(PredictedMemory, SizesThatNoMachineHasDoNotOverflow) {
  TrainConfig config;
  config.model.vocab_size = config.model.context_length = 1 << 24;
  config.model.layers = config.model.heads = 4096;
  config.model.dim = config.model.ffn_dim = 1 << 20;
  config.steps = 1;
  config.batch = 1 << 24;
  const ExecResources resources = make_exec_resources(Device{}, 1);
  RunPlan plan = Trainer::plan(resources.context, derive(config), 1);
  plan.memory = predict_memory(resources.context, derive(config));
  // The residual stream alone: rows x length x width x layers x 4 bytes, far beyond 2^60.
  EXPECT_GE(plan.memory.activations, int64_t{1} << 60);
  EXPECT_GT(plan.memory.total(), plan.memory.activations);
}

TEST(MemoryAdvice, NamesNoRowsThatAreTooShort) {
  const ExecResources resources = make_exec_resources(Device{}, 1);
  TrainConfig config = base_config();
  config.data.length = 128;
  config = derive(config);
  const auto advice = [&](int64_t available) { return memory_advice(resources.context, config, available); };
  const std::string none = advice(1);
  EXPECT_NE(none.find("micro_batch=1 takes"), std::string::npos) << none;
  EXPECT_NE(none.find("data.length=16 takes"), std::string::npos) << none;
  EXPECT_TRUE(none.ends_with(", still too much; a smaller model is needed")) << none;
  TrainConfig fitting = config;
  fitting.data.length = 32;
  const std::string some = advice(predict_memory(resources.context, fitting).total());
  EXPECT_NE(some.find("data.length=32 takes"), std::string::npos) << some;
  EXPECT_EQ(some.find("smaller model"), std::string::npos) << some;
  config.micro_batch = 1;
  config.data.length = 31;
  const std::string short_rows = advice(1);
  EXPECT_EQ(short_rows.find("data.length"), std::string::npos) << short_rows;
  EXPECT_TRUE(short_rows.ends_with("a smaller model is needed")) << short_rows;
}

}  // namespace
}  // namespace loam
