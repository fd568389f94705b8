// Branches of a run, and models that are trained further.
#include "loam/train/run_origin.h"

#include <gtest/gtest.h>

#include <map>

#include "loam/format/safetensors.h"
#include "loam/train/run_data.h"
#include "tests/harness/expect_error.h"
#include "tests/train/run_testing.h"

namespace loam {
namespace {

using testing::final_state;
using testing::records_of;

class OriginTest : public testing::RunTest {
 protected:
  OriginTest() {
    config.optimizer.schedule = ScheduleKind::constant;
    config.save_every = 5;
    config.keep_last = 100;
  }
  Path checkpoint(const char* run, int64_t step) {
    return directory / run / "checkpoints" / fmt::format("step-{:08}", step);
  }
  RunOptions branch_of(const Path& from, const std::string& out) {
    RunOptions o = options(out);
    o.branch = from;
    return o;
  }
  // As the command line does it.
  RunSummary start(const RunOptions& o, const std::vector<std::string>& settings) {
    const std::optional<Path> goes_on = newest_with_origin(o);
    TrainConfig whole = origin_config(o, config, goes_on);
    for (const std::string& setting : settings) config_set(whole, setting);
    if (o.branch && !goes_on) settle_branch(*o.branch, whole);
    return run_training(resources.context, whole, o);
  }
  Trainer trainer_of(const TrainConfig& c) {
    return {resources.context, derive(c), std::make_shared<TokenSet>(directory / "data" / "train"), nullptr};
  }
  std::map<std::string, std::vector<float>> weights_of(Trainer& trainer) {
    std::filesystem::remove_all(directory / "copy");
    CheckpointStore store(directory / "copy");
    return weights_of(trainer.save(store, {}) / "model.safetensors");
  }
  // Weights by name.
  static std::map<std::string, std::vector<float>> weights_of(const Path& file) {
    std::map<std::string, std::vector<float>> weights;
    const SafetensorsFile tensors(file);
    for (const std::string& name : tensors.names()) {
      const auto values = tensors.tensor(name).span<float>();
      weights[name].assign(values.begin(), values.end());
    }
    return weights;
  }
};

const std::vector<std::string> kDecay{"optimizer.schedule=wsd", "optimizer.decay_steps=10"};

// A stable run of constant rate and a branch of it are one run of warm-up, stable phase and decay.
TEST_F(OriginTest, ABranchIsTheRunThatDecaysFromThere) {
  run(options("stable"));
  TrainConfig straight = config;
  straight.optimizer.schedule = ScheduleKind::wsd;
  straight.optimizer.decay_steps = 10;
  straight.steps = 30;
  run_training(resources.context, straight, options("straight"));

  const RunOptions o = branch_of(checkpoint("stable", 20), "branch");
  EXPECT_EQ(start(o, kDecay).steps, 30);
  EXPECT_EQ(final_state(o.out), final_state(directory / "straight"));
  const std::vector<Json> records = records_of(o.out, "train");
  ASSERT_EQ(records.size(), 10u);  // its own steps
  for (size_t i = 0; i < 10; ++i) {
    const double part = static_cast<double>(i) / 10;  // torch's and MiniCPM's linear decay to a tenth
    EXPECT_NEAR(records[i].at("lr").as_double(), 1e-2 * (1 - 0.9 * part), 1e-12);
  }
  const Json origin = records_of(o.out, "start")[0].at("origin");
  EXPECT_EQ(Path(origin.at("branch").as_string()), std::filesystem::canonical(*o.branch));
  EXPECT_EQ(final_state(directory / "stable").substr(0, 3), "40 ");  // untouched

  // Many from one: by the step at which it ends, and with another shape.
  RunOptions other = branch_of(checkpoint("stable", 20), "other");
  EXPECT_EQ(start(other, {"optimizer.schedule=wsd", "steps=25", "optimizer.decay_shape=sqrt"}).steps, 25);
  EXPECT_NEAR(records_of(other.out, "train")[1].at("lr").as_double(), 1e-3 + 9e-3 * (1 - std::sqrt(0.2)), 1e-12);
}

TEST_F(OriginTest, TheSameCommandGoesOnWithABranch) {
  run(options("stable"));
  const RunOptions o = branch_of(checkpoint("stable", 20), "branch");
  start(o, kDecay);
  const std::string whole = final_state(o.out);
  EXPECT_EQ(start(o, kDecay).steps, 30);
  EXPECT_EQ(final_state(o.out), whole);
  // Killed after step 25; what it came from is gone.
  std::filesystem::remove_all(checkpoint("branch", 30));
  std::filesystem::remove_all(directory / "stable");
  EXPECT_EQ(start(o, kDecay).steps, 30);
  EXPECT_EQ(final_state(o.out), whole);
  EXPECT_EQ(records_of(o.out, "train").size(), 10u);
  // Without --branch it is a run like any other.
  std::filesystem::remove_all(checkpoint("branch", 30));
  const TrainConfig same = checkpoint_config(checkpoint("branch", 25));
  run_training(resources.context, same, options("branch"));
  EXPECT_EQ(final_state(o.out), whole);
  EXPECT_LOAM_ERROR(start(o, {"optimizer.decay_steps=12"}), ErrorCode::kInvalidArgument, "optimizer.decay_steps");
}

// The newest whole checkpoint of the run, and the run's model; a branch goes on with what it began with.
TEST_F(OriginTest, ADirectoryOfARunMeansWhatIsInIt) {
  const auto settled = [](RunOptions o) {
    settle_origin(o);
    return o;
  };
  run(options("stable"));
  RunOptions o = branch_of(directory / "stable", "branch");
  EXPECT_EQ(*settled(o).branch, checkpoint("stable", 40));
  const Path torn = checkpoint("stable", 40) / "model.safetensors";
  std::filesystem::resize_file(torn, std::filesystem::file_size(torn) - 1);
  EXPECT_EQ(*settled(o).branch, checkpoint("stable", 35));
  EXPECT_EQ(*settled(branch_of(checkpoint("stable", 5), "branch")).branch, checkpoint("stable", 5));
  EXPECT_EQ(start(settled(o), kDecay).steps, 45);
  const std::string whole = final_state(o.out);
  // Killed after step 40, while the run it came from went on.
  std::filesystem::remove_all(checkpoint("branch", 45));
  std::filesystem::remove_all(checkpoint("stable", 40));
  run(options("stable"));
  EXPECT_EQ(*settled(o).branch, checkpoint("stable", 35));
  EXPECT_EQ(start(settled(o), kDecay).steps, 45);
  EXPECT_EQ(final_state(o.out), whole);
  o.resume = RunOptions::Resume::never;
  EXPECT_EQ(*settled(o).branch, checkpoint("stable", 40));

  RunOptions further = options("further");
  further.init_from = directory / "stable";
  EXPECT_EQ(*settled(further).init_from, directory / "stable" / "model");
  std::filesystem::remove_all(directory / "stable" / "model");
  EXPECT_LOAM_ERROR(settle_origin(further), ErrorCode::kNotFound, "the run has no model yet");
  std::filesystem::remove_all(directory / "stable" / "checkpoints");
  o.branch = directory / "stable";
  EXPECT_LOAM_ERROR(settle_origin(o), ErrorCode::kNotFound, "there is no complete checkpoint");
}

TEST_F(OriginTest, ABranchMayOnlyChangeTheScheduleAndWhatIsKept) {
  run(options("stable"));
  const RunOptions o = branch_of(checkpoint("stable", 10), "branch");
  for (const char* setting : {"optimizer.lr=0.1", "optimizer.weight_decay=0", "optimizer.warmup_steps=2", "seed=2"}) {
    EXPECT_LOAM_ERROR(start(o, {"steps=12", setting}), ErrorCode::kInvalidArgument,
                      std::string(setting).substr(0, std::string(setting).find('=')));
  }
  EXPECT_FALSE(std::filesystem::exists(o.out));
  EXPECT_EQ(start(o, {"steps=12", "val_every=0", "optimizer.min_lr_ratio=0"}).steps, 12);
}

TEST_F(OriginTest, ABranchSaysHowFarItGoes) {
  run(options("stable"));
  const RunOptions o = branch_of(checkpoint("stable", 20), "branch");
  const auto refuses = [&](const std::vector<std::string>& settings, const std::string& message) {
    EXPECT_LOAM_ERROR(start(o, settings), ErrorCode::kInvalidArgument, message);
  };
  refuses({}, "needs optimizer.decay_steps, or steps beyond 20");
  refuses({"steps=20"}, "steps (20) is not beyond the branch's step (20)");
  refuses({"optimizer.decay_steps=10"}, "needs optimizer.schedule wsd, and the branch has constant");
  refuses({"optimizer.schedule=wsd", "optimizer.decay_steps=10", "steps=25"}, "reaches back behind the branch's step");
  TrainConfig both = checkpoint_config(*o.branch);
  config_set(both, "optimizer.schedule=wsd");
  both.steps = 50, both.optimizer.decay_steps = 10;
  settle_branch(*o.branch, both);
  EXPECT_EQ(both.steps, 50);
  EXPECT_EQ(both.optimizer.decay_steps, 10);
}

// By hand: a cosine from 1e-2 at step 5 to 1e-3 at step 40 is 1e-3 + 4.5e-3 (1 + cos(pi 15 / 35)) at step 20; wsd
// decays in the last 8 of 40.
TEST_F(OriginTest, TheRateDoesNotJumpUpAtABranch) {
  config.optimizer.schedule = ScheduleKind::cosine;
  run(options("cosine"));
  EXPECT_LOAM_ERROR(start(branch_of(checkpoint("cosine", 20), "branch"), kDecay), ErrorCode::kInvalidArgument,
                    "a learning rate of 0.00650134, and the branch would begin with 0.01; the last step with that rate "
                    "is 5");
  config.optimizer.schedule = ScheduleKind::wsd;
  run(options("wsd"));
  EXPECT_LOAM_ERROR(start(branch_of(checkpoint("wsd", 35), "branch"), {"steps=60"}), ErrorCode::kInvalidArgument,
                    "the last step with that rate is 32");
  EXPECT_FALSE(std::filesystem::exists(directory / "branch"));
  EXPECT_EQ(start(branch_of(checkpoint("wsd", 30), "branch"), {"steps=45"}).steps, 45);
}

TEST_F(OriginTest, AnotherRunIsNotTakenForABranch) {
  run(options("stable"));
  RunOptions o = branch_of(checkpoint("stable", 20), "stable");
  EXPECT_LOAM_ERROR(start(o, kDecay), ErrorCode::kAlreadyExists, "holds another run");
  o.resume = RunOptions::Resume::never, o.force = true;
  EXPECT_LOAM_ERROR(start(o, kDecay), ErrorCode::kInvalidArgument, "a directory of its own");
  start(branch_of(checkpoint("stable", 20), "branch"), kDecay);
  EXPECT_LOAM_ERROR(start(branch_of(checkpoint("stable", 30), "branch"), kDecay), ErrorCode::kAlreadyExists,
                    "holds another run");
  EXPECT_LOAM_ERROR(start(branch_of(directory / "nowhere", "new"), kDecay), ErrorCode::kNotFound, "nowhere");
}

TEST_F(OriginTest, AModelIsTrainedFurther) {
  run(options("first"));
  const Path model = directory / "first" / "model";
  const auto learned = weights_of(checkpoint("first", 40) / "model.safetensors");
  RunOptions o = options("second");
  o.init_from = model;
  config.seed = 2;
  config.model.dim = 8;  // the MODEL's counts
  config.steps = 10;
  EXPECT_EQ(start(o, {}).steps, 10);
  const std::vector<Json> records = records_of(o.out, "train");
  EXPECT_EQ(records[0].at("step").as_int(), 1);
  EXPECT_EQ(records[0].at("lr").as_double(), 0);
  // It knows already what the first run learned, which began at the loss of a coin with 64 sides.
  EXPECT_LT(records[0].at("loss").as_double(), records_of(directory / "first", "train")[20].at("loss").as_double());
  EXPECT_EQ(checkpoint_config(checkpoint("second", 10)).model.dim, 32);

  // The same command goes on, the MODEL there or not.
  const std::string whole = final_state(o.out);
  std::filesystem::remove_all(checkpoint("second", 10));
  start(o, {});
  EXPECT_EQ(final_state(o.out), whole);
  std::filesystem::remove_all(checkpoint("second", 10));
  std::filesystem::rename(model, directory / "elsewhere");
  start(o, {});
  EXPECT_EQ(final_state(o.out), whole);
  RunOptions other = o;
  other.init_from = directory / "elsewhere";
  EXPECT_EQ(start(other, {}).steps, 10);  // the same MODEL under another name
  other.out = directory / "first";
  EXPECT_LOAM_ERROR(start(other, {}), ErrorCode::kAlreadyExists, "holds another run");
}

TEST_F(OriginTest, OtherWeightsOfTheSameShapeAreAnotherModel) {
  config.steps = 10;
  run(options("first"));
  config.seed = 2;
  run(options("other"));
  RunOptions o = options("tuned");
  o.init_from = directory / "first" / "model";
  start(o, {});
  const Path kept = directory / "kept";
  std::filesystem::rename(directory / "first" / "model", kept);
  std::filesystem::rename(directory / "other" / "model", directory / "first" / "model");  // the same path
  EXPECT_LOAM_ERROR(start(o, {}), ErrorCode::kAlreadyExists, "holds another run");
  o.init_from = kept;
  EXPECT_EQ(start(o, {}).steps, 10);
}

TEST_F(OriginTest, ARetrainedParentIsAnother) {
  run(options("stable"));
  const RunOptions o = branch_of(checkpoint("stable", 20), "branch");
  start(o, kDecay);
  std::filesystem::remove_all(directory / "stable");
  config.seed = 2;
  run(options("stable"));
  EXPECT_LOAM_ERROR(start(o, kDecay), ErrorCode::kAlreadyExists, "holds another run");
}

// f32 masters take the weights as they are; so do bf16 weights of a MODEL in bf16.
TEST_F(OriginTest, WeightsOfTheModelAreTakenOverExactly) {
  run(options("first"));
  const Path model = directory / "first" / "model";
  const auto expected = weights_of(checkpoint("first", 40) / "model.safetensors");
  for (const ComputeDtype dtype : {ComputeDtype::f32, ComputeDtype::bf16}) {
    TrainConfig other = config;
    other.dtype = dtype;
    other.seed = 3;
    Trainer trainer = trainer_of(other);
    resources.arena->reset_peak();
    trainer.init_from(model);
    EXPECT_EQ(resources.arena->stats().total_peak, resources.arena->stats().total);  // nothing is held twice
    EXPECT_EQ(trainer.steps_done(), 0);
    EXPECT_EQ(weights_of(trainer), expected);
    for (int32_t i = 0; i < trainer.model().weights->size(); ++i) {
      const Tensor weight = trainer.model().weights->value(i);
      if (weight.dtype() != DType::bf16) continue;
      const float first = expected.at(trainer.model().weights->name(i))[0];
      EXPECT_EQ(weight.data<Bf16>()[0].bits, Bf16(first).bits);
    }
  }
}

TEST_F(OriginTest, AModelThatDoesNotFitChangesNothing) {
  config.steps = 1;
  run(options("first"));
  const Path model = directory / "first" / "model", file = model / "model.safetensors";
  const auto refuses = [&](const TrainConfig& other, ErrorCode code, const std::string& part) {
    Trainer trainer = trainer_of(other);
    const auto before = weights_of(trainer);
    EXPECT_LOAM_ERROR(trainer.init_from(model), code, part);
    EXPECT_EQ(weights_of(trainer), before);
  };
  TrainConfig wider = config, shorter = config;
  wider.model.dim = 64;
  refuses(wider, ErrorCode::kInvalidArgument, "has embedding [64, 32] where embedding [64, 64] is wanted");
  shorter.model.layers = 1;
  refuses(shorter, ErrorCode::kInvalidArgument, "has layers.1.attention_norm.weight [32] where norm.weight [32]");

  // All of its tensors fit but the last.
  std::vector<std::pair<std::string, Tensor>> tensors;
  const SafetensorsFile whole(file);
  for (const std::string& name : whole.names()) tensors.emplace_back(name, whole.tensor(name));
  const auto [name, last] = tensors.back();
  tensors.back() = {name, last.narrow(0, 0, last.dim(0) - 1)};
  write_safetensors(file, tensors);
  refuses(config, ErrorCode::kBadFormat, name + " has shape");
  tensors.back() = {"stranger", last};
  write_safetensors(file, tensors);
  refuses(config, ErrorCode::kBadFormat, "1 tensors are missing: " + name + "; 1 tensors belong nowhere: stranger");
}

}  // namespace
}  // namespace loam
