// Activations that are computed again, in whole training steps.
#include <gtest/gtest.h>

#include "loam/kernels/kernel_table.h"
#include "loam/train/trainer.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/sanitizers.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

// What a few steps give and take.
struct Outcome {
  std::vector<double> losses, norms;
  std::vector<std::string> layers;
  std::vector<std::vector<float>> weights;
  int64_t peak = 0;
};

class RecomputeRunTest : public ::testing::Test {
 protected:
  RecomputeRunTest() { testing::write_data(directory / "data"); }
  std::shared_ptr<TokenSet> set() { return std::make_shared<TokenSet>(directory / "data" / "train"); }
  TrainConfig config(const std::vector<std::string>& settings) {
    TrainConfig c = testing::tiny_config();
    c.model.layers = 6;
    for (const std::string& setting : settings) config_set(c, setting);
    return derive(c);
  }
  Outcome run(const std::vector<std::string>& settings) {
    const ExecResources resources = testing::test_resources(2);
    Trainer trainer(resources.context, config(settings), set(), nullptr);
    Outcome out;
    for (int step = 0; step < 4; ++step) {
      const StepResult result = trainer.step();
      out.losses.push_back(*result.loss);
      out.norms.push_back(*result.grad_norm);
      out.layers.push_back(to_json(result.layers).dump());
    }
    out.peak = resources.arena->stats().total_peak;
    const ParamStore& weights = *trainer.model().weights;
    for (int32_t i = 0; i < weights.size(); ++i) {
      const Tensor value = trainer.model().weights->value(i);
      std::vector<float> values;
      for (int64_t k = 0; k < value.numel(); ++k) {
        values.push_back(value.dtype() == DType::bf16 ? static_cast<float>(value.data<Bf16>()[k])
                                                      : value.data<float>()[k]);
      }
      out.weights.push_back(std::move(values));
    }
    return out;
  }

  testing::TempDir directory;
};

// With dropout, packed documents, several micro-batches and looks at every layer.
TEST_F(RecomputeRunTest, NoBitChangesAndThePeakFalls) {
  for (const char* dtype : {"dtype=f32", "dtype=bf16"}) {
    const std::vector<std::string> base{dtype, "model.dropout=0.1", "model.attention_dropout=0.1", "detail_every=2"};
    const Outcome plain = run(base);
    EXPECT_NE(plain.losses[0], plain.losses[3]);
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> settings = base;
      settings.insert(settings.end(), more.begin(), more.end());
      const Outcome again = run(settings);
      EXPECT_EQ(again.losses, plain.losses);
      EXPECT_EQ(again.norms, plain.norms);
      EXPECT_EQ(again.layers, plain.layers);
      EXPECT_EQ(again.weights, plain.weights);
      return again.peak;
    };
    const int64_t groups = with({"recompute.groups=[3]"}), nested = with({"recompute.groups=[3,1]"});
    EXPECT_LT(groups, plain.peak);
    EXPECT_LT(nested, groups);
    EXPECT_LT(with({"recompute.groups=[1]"}), plain.peak);
    EXPECT_LT(with({"recompute.part=attention"}), plain.peak);
    const int64_t both = with({"recompute.part=both"});
    EXPECT_LT(both, with({"recompute.part=mlp"}));
  }
}

// The activations of a deep model grow with the square root of its depth, not with it.
TEST_F(RecomputeRunTest, GroupsOfTheRootOfTheLayersTakeTheRootOfTheMemory) {
  const auto activations = [&](int64_t layers, const std::string& groups) {
    TrainConfig c = config({"data.length=24", "model.layers=" + std::to_string(layers), "recompute.groups=" + groups});
    const ExecResources resources = make_exec_resources(Device{}, 1);
    return static_cast<double>(predict_memory(resources.context, c).activations);
  };
  EXPECT_GT(activations(64, "[]") / activations(16, "[]"), 3.5);
  EXPECT_LT(activations(64, "[8]") / activations(16, "[4]"), 2.2);
  EXPECT_LT(activations(64, "[16,4]") / activations(64, "[8]"), 0.75);  // cube roots
}

// Operations of the products that a step asks for, and of attention over the keys that are seen.
double counted_flops;
KernelTable counting_table(const KernelTable& real) {
  static KernelTable base;
  base = real;
  KernelTable table = real;
  table.matmul.function = [](const ExecContext& ctx, const MatmulArgs& args) {
    counted_flops += 2.0 * static_cast<double>(args.c.numel() * args.a.dim(args.transpose_a ? 0 : 1));
    base.matmul(ctx, args);
  };
  const auto pairs = [](const View& q) {
    const auto [B, T, H, D] = q.dims<4>();
    return static_cast<double>(B * H * D) * static_cast<double>(T * (T + 1) / 2);
  };
  static const auto count = pairs;
  table.attention_fwd.function = [](const ExecContext& ctx, const AttentionFwdArgs& args) {
    counted_flops += 4 * count(args.q);
    base.attention_fwd(ctx, args);
  };
  table.attention_bwd.function = [](const ExecContext& ctx, const AttentionBwdArgs& args) {
    counted_flops += 8 * count(args.q);
    base.attention_bwd(ctx, args);
  };
  return table;
}

TEST_F(RecomputeRunTest, ThePlanKnowsWhatIsComputedAgain) {
  const ExecResources resources = make_exec_resources(Device{}, 1);
  ExecContext ctx = resources.context;
  const KernelTable counting = counting_table(*ctx.kernels);
  ctx.kernels = &counting;
  for (const char* setting :
       {"recompute.groups=[]", "recompute.groups=[1]", "recompute.groups=[4]", "recompute.groups=[4,2]",
        "recompute.groups=[6,4,1]", "recompute.part=attention", "recompute.part=mlp", "recompute.part=both"}) {
    const TrainConfig c = config({"data.mask_documents=false", setting});
    Trainer trainer(ctx, c, set(), nullptr);
    counted_flops = 0;
    trainer.step();
    const RunPlan plan = Trainer::plan(ctx, c, 0);
    EXPECT_NEAR(plan.flops_per_step + plan.recomputed_flops_per_step, counted_flops, 1e-9 * counted_flops) << setting;
    EXPECT_EQ(plan.flops_per_step, Trainer::plan(ctx, config({"data.mask_documents=false"}), 0).flops_per_step);
  }
}

// A run may go on with more or less memory.
TEST_F(RecomputeRunTest, MayChangeOnResume) {
  const ExecResources resources = testing::test_resources(1);
  Trainer first(resources.context, config({}), set(), nullptr);
  first.step();
  CheckpointStore store(directory / "checkpoints");
  const Path path = first.save(store, {});
  Trainer second(resources.context, config({"recompute.groups=[2]", "recompute.part=mlp"}), set(), nullptr);
  second.load(path, false);
  EXPECT_EQ(*second.step().loss, *first.step().loss);
}

}  // namespace
}  // namespace loam
