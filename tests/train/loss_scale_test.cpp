// Training in fp16. The rule of the scale itself: tests/kernels/optimizer_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "loam/kernels/kernel_table.h"
#include "loam/train/trainer.h"
#include "tests/harness/expect_error.h"
#include "tests/train/run_testing.h"

namespace loam {
namespace {

using testing::records_of;

// The gradients of batches that begin with one of these samples, or of all, are too large.
std::set<int64_t> too_large;
bool all_too_large = false;
const KernelTable& overflowing_kernels() {
  static KernelTable table = cpu_kernel_table();
  table.cross_entropy_rows.function = [](const ExecContext& ctx, const CrossEntropyRowsArgs& a) {
    cpu_kernel_table().cross_entropy_rows(ctx, a);
    if (ctx.step && a.write_gradient && (all_too_large || too_large.contains(ctx.step->first_sample)))
      a.logits.ptr<float>()[0] = 1e10f;  // infinite in fp16
  };
  return table;
}

class LossScaleTest : public testing::RunTest {
 protected:
  LossScaleTest() {
    config.dtype = ComputeDtype::fp16;
    config.data.shuffle = false;
    resources.context.kernels = &overflowing_kernels();
    too_large.clear();
    all_too_large = false;
  }
  Trainer trainer() {
    const auto set = [&](const char* name) { return std::make_shared<TokenSet>(directory / "data" / name); };
    return {resources.context, derive(config), set("train"), set("val")};
  }
};

TEST_F(LossScaleTest, AStepWhoseGradientsOverflowHalvesItAndChangesNothing) {
  const std::set<int64_t> bad{2, 3, 7};
  for (const int64_t step : bad) too_large.insert((step - 1) * config.batch);
  Trainer scaled = trainer();
  double scale = 65536;
  int64_t updates = 0;
  std::vector<float> before;
  for (int64_t step = 1; step <= 9; ++step) {
    const StepResult result = scaled.step();
    scale = bad.contains(step) ? scale / 2 : scale;
    updates += bad.contains(step) ? 0 : 1;
    EXPECT_EQ(result.step, step);
    EXPECT_EQ(result.overflow, bad.contains(step));
    EXPECT_EQ(result.skipped, bad.contains(step));
    EXPECT_FALSE(result.spike);
    EXPECT_EQ(*result.loss_scale, scale);
    const auto weights = scaled.model().weights->find("norm.weight").value().span<float>();
    const std::vector<float> after(weights.begin(), weights.end());
    if (step > 2) {  // the rate of the first step is 0
      EXPECT_EQ(after == before, bad.contains(step)) << step;
    }
    before = after;
  }
  CheckpointStore store(directory / "store");
  const Json state = read_checkpoint_state(scaled.save(store, {}));
  EXPECT_EQ(state.at("updates").as_int(), updates);
  EXPECT_EQ(state.at("loss_scale").at("scale").as_double(), 8192);
  EXPECT_EQ(state.at("loss_scale").at("good_steps").as_int(), 2);
}

TEST_F(LossScaleTest, GoesOnBitForBit) {
  config.optimizer.warmup_steps = 0;
  too_large = {0, 4 * config.batch};
  config.steps = 20;
  config.save_every = 7;
  run(options("whole"));
  RunOptions o = options("halves");
  config.sample_every = 7;
  o.sample = [](const Model&) {
    request_interrupt();
    return std::string("x");
  };
  EXPECT_TRUE(run(o).interrupted);
  clear_interrupt();
  o.sample = {};
  EXPECT_FALSE(run(o).interrupted);
  EXPECT_EQ(testing::curve_of(o.out), testing::curve_of(directory / "whole"));
  EXPECT_EQ(testing::final_state(o.out), testing::final_state(directory / "whole"));
  for (const Json& record : records_of(o.out, "train")) {
    EXPECT_EQ(record.at("loss_scale").as_double(), record.at("step").as_int() < 5 ? 32768 : 16384);
  }
  const auto newest = CheckpointStore(o.out / "checkpoints").newest_complete();
  EXPECT_EQ(read_checkpoint_state(newest->path).at("loss_scale").at("good_steps").as_int(), 15);
}

// Sixteen steps look for a scale, and twenty at the least one find that no scale helps.
TEST_F(LossScaleTest, AtTheLeastScaleAnOverflowIsAFault) {
  all_too_large = true;
  config.steps = 100;
  config.val_every = config.save_every = 1000;
  const RunOptions o = options("run");
  EXPECT_LOAM_ERROR(run(o), ErrorCode::kInvalidArgument,
                    "20 steps in a row changed nothing: the gradient is not finite");
  ASSERT_EQ(records_of(o.out, "stopped").size(), 1u);
  EXPECT_EQ(records_of(o.out, "stopped")[0].at("step").as_int(), 36);
  EXPECT_EQ(records_of(o.out, "train").back().at("loss_scale").as_double(), 1);
}

// The scale is not seen in what is reported.
TEST_F(LossScaleTest, NormsAreThoseWithoutIt) {
  config.detail_every = 1;
  Trainer half = trainer();
  config.dtype = ComputeDtype::f32;
  Trainer whole = trainer();
  for (int step = 1; step <= 3; ++step) {
    const StepResult a = half.step(), b = whole.step();
    EXPECT_FALSE(b.loss_scale);
    EXPECT_NEAR(*a.loss, *b.loss, 5e-3 * *b.loss);
    EXPECT_NEAR(*a.grad_norm, *b.grad_norm, 2e-2 * *b.grad_norm);
    double squares = 0;
    for (const LayerDetail& layer : a.layers) squares += layer.gradient_norm * layer.gradient_norm;
    EXPECT_NEAR(std::sqrt(squares), *a.grad_norm, 1e-5 * *a.grad_norm);
  }
}

TEST_F(LossScaleTest, HostileScalesAreRefused) {
  Trainer one = trainer();
  one.step();
  CheckpointStore store(directory / "store"), hostile(directory / "hostile");
  const Path path = one.save(store, {});
  for (const char* bad : {R"({"scale":0.5,"good_steps":0})", R"({"scale":1e300,"good_steps":0})",
                          R"({"scale":2,"good_steps":2000})", R"({"scale":2,"good_steps":-1})", "3"}) {
    Json state = Json::parse(read_file(path / "state.json"));
    state["loss_scale"] = Json::parse(bad);
    const Path copy = hostile.save(1, {}, state, {});
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
      std::filesystem::copy_file(path / name, copy / name, std::filesystem::copy_options::overwrite_existing);
    }
    Trainer other = trainer();
    EXPECT_LOAM_ERROR(other.load(VerifiedCheckpoint(copy), false), ErrorCode::kBadFormat, "state.json");
  }
}

}  // namespace
}  // namespace loam
