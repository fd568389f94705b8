// Every optimizer within the trainer: groups, checkpoints, resuming.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "loam/format/safetensors.h"
#include "loam/model/transformer.h"
#include "loam/train/optimizer_groups.h"
#include "loam/train/run_data.h"
#include "loam/train/trainer.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/expect_error.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

const std::vector<std::vector<std::string>> kOptimizers{
    {"optimizer.kind=adamw"},
    {"optimizer.kind=adamw", "optimizer.form=course"},
    {"optimizer.kind=adam", "optimizer.weight_decay=0.001"},
    {"optimizer.kind=sgd", "optimizer.weight_decay=0.001"},
    {"optimizer.kind=sgd", "optimizer.momentum=0.9", "optimizer.weight_decay=0.001"},
    {"optimizer.kind=adagrad", "optimizer.weight_decay=0.001"},
    {"optimizer.kind=rmsprop", "optimizer.weight_decay=0.001"},
    {"optimizer.kind=rmsprop", "optimizer.momentum=0.5", "optimizer.weight_decay=0.001"},
    {"optimizer.kind=lion", "optimizer.lr=0.001"},
    {"optimizer.kind=muon", R"(optimizer.groups=[{"match":"layers.0.*","lr_scale":0.5}])"},
    {"optimizer.kind=lion", "optimizer.lr=0.001", R"(optimizer.groups=[{"match":"embedding","kind":"adamw"}])"},
};

class OptimizersTest : public ::testing::Test {
 protected:
  OptimizersTest() { testing::write_data(directory / "data"); }

  Trainer make(const TrainConfig& config) {
    const auto set = [&](const char* name) { return std::make_shared<TokenSet>(directory / "data" / name); };
    return Trainer(resources.context, derive(config), one_source(set("train"), set("val")));
  }
  static TrainConfig config_of(const std::vector<std::string>& settings, ComputeDtype dtype = ComputeDtype::f32) {
    TrainConfig config = testing::tiny_config();
    config.dtype = dtype;
    for (const std::string& setting : settings) config_set(config, setting);
    return config;
  }
  // Every tensor of a checkpoint of it.
  std::map<std::string, std::vector<float>> state_of(Trainer& trainer, const std::string& name) {
    CheckpointStore store(directory / name);
    const Path path = trainer.save(store, {});
    std::map<std::string, std::vector<float>> state;
    for (const char* part : {"model", "optimizer"}) {
      const SafetensorsFile file(path / (std::string(part) + ".safetensors"));
      for (const std::string& tensor : file.names()) {
        const auto values = file.tensor(tensor).span<float>();
        state[std::string(part) + ":" + tensor].assign(values.begin(), values.end());
      }
    }
    return state;
  }

  testing::TempDir directory;
  ExecResources resources = testing::test_resources(1);
};

TEST_F(OptimizersTest, ResumingContinuesBitForBit) {
  for (const ComputeDtype dtype : {ComputeDtype::f32, ComputeDtype::bf16}) {
    for (const std::vector<std::string>& settings : kOptimizers) {
      SCOPED_TRACE(settings[0] + (dtype == ComputeDtype::bf16 ? " bf16" : ""));
      const TrainConfig config = config_of(settings, dtype);
      Trainer straight = make(config), first = make(config), second = make(config);
      for (int i = 0; i < 6; ++i) straight.step();
      for (int i = 0; i < 3; ++i) first.step();
      std::filesystem::remove_all(directory / "half");
      CheckpointStore half(directory / "half");
      second.load(first.save(half, {}), false);
      for (int i = 0; i < 3; ++i) second.step();
      for (const char* name : {"straight", "second", "start"}) std::filesystem::remove_all(directory / name);
      const auto expected = state_of(straight, "straight");
      EXPECT_EQ(state_of(second, "second"), expected);
      Trainer fresh = make(config);
      for (const auto& [name, values] : state_of(fresh, "start")) {
        EXPECT_NE(values, expected.at(name)) << name << " has not changed in six steps";
      }
    }
  }
}

TEST_F(OptimizersTest, EveryOneLearns) {
  for (const std::vector<std::string>& settings : kOptimizers) {
    SCOPED_TRACE(settings[0]);
    TrainConfig config = config_of(settings);
    config.overfit_one_batch = true;
    if (config.optimizer.kind == OptimizerKind::sgd) config.optimizer.lr = 0.5, config.optimizer.clip_norm = 0;
    Trainer trainer = make(config);
    const double before = *trainer.step().loss;
    double after = before;
    for (int i = 0; i < 30; ++i) after = *trainer.step().loss;
    EXPECT_LT(after, before - 0.3);
  }
}

TEST_F(OptimizersTest, CheckpointsNameWhatEachKeeps) {
  const auto kept = [&](const std::vector<std::string>& settings) {
    Trainer trainer = make(config_of(settings));
    std::filesystem::remove_all(directory / "names");
    std::set<std::string> names;
    for (const auto& [name, values] : state_of(trainer, "names")) {
      if (name.ends_with(".layers.1.attention.qkv") || name.ends_with(".norm.weight") || name.ends_with(".head")) {
        names.insert(name.substr(name.find(':') + 1));
      }
    }
    return names;
  };
  EXPECT_EQ(kept({"optimizer.kind=sgd"}), std::set<std::string>{});
  EXPECT_EQ(kept({"optimizer.kind=lion", "model.tied_embeddings=false"}),
            (std::set<std::string>{"m.head", "m.layers.1.attention.qkv", "m.norm.weight"}));
  EXPECT_EQ(kept({"optimizer.kind=sgd", R"(optimizer.groups=[{"match":"vector","kind":"adamw"}])"}),
            (std::set<std::string>{"m.norm.weight", "v.norm.weight"}));
  EXPECT_EQ(
      kept({"optimizer.kind=muon", "model.tied_embeddings=false"}),
      (std::set<std::string>{"m.head", "v.head", "momentum.layers.1.attention.qkv", "m.norm.weight", "v.norm.weight"}));
}

// Bytes a parameter beside weights and gradients: 4 for each number that is kept, and 4 for a master of bf16 weights.
TEST_F(OptimizersTest, MemoryIsPlannedByWhatEachKeeps) {
  const std::vector<double> numbers{2, 2, 2, 0, 1, 1, 1, 2, 1};
  for (const ComputeDtype dtype : {ComputeDtype::f32, ComputeDtype::bf16}) {
    for (size_t i = 0; i < kOptimizers.size(); ++i) {
      SCOPED_TRACE(kOptimizers[i][0]);
      TrainConfig config = config_of(kOptimizers[i], dtype);
      config.model.dim = 128;  // so that vectors and padding are next to nothing
      config = derive(config);
      const auto parameters = static_cast<double>(parameter_count(config.model));
      double expected = dtype == ComputeDtype::bf16 ? 4 * parameters : 0;
      if (i < numbers.size()) {
        expected += 4 * numbers[i] * parameters;
      } else {  // Muon, and Lion with AdamW: one number for the matrices of the layers, two for the table
        expected += 4 * parameters + 4 * 64 * 128;
      }
      EXPECT_NEAR(static_cast<double>(predict_memory(resources.context, config).moments), expected,
                  0.02 * 4 * parameters);
    }
  }
}

TEST_F(OptimizersTest, AnotherKindIsRefusedEvenWhenChangesAreAllowed) {
  Trainer adamw = make(config_of({})), lion = make(config_of({"optimizer.kind=lion"}));
  adamw.step();
  CheckpointStore store(directory / "checkpoints");
  const VerifiedCheckpoint checkpoint(adamw.save(store, {}));
  for (const bool allowed : {false, true}) {
    EXPECT_LOAM_ERROR(lion.load(checkpoint, allowed), ErrorCode::kInvalidArgument,
                      "was trained with adamw, whose state lion cannot go on from");
  }
  const std::string up = R"(optimizer.groups=[{"match":"layers.*.mlp.up","kind":"lion"}])";
  Trainer other_up = make(config_of({up}));
  EXPECT_LOAM_ERROR(other_up.load(checkpoint, true), ErrorCode::kInvalidArgument,
                    "layers.0.mlp.up was trained with adamw, whose state lion cannot go on from");
  Trainer same = make(config_of({R"(optimizer.groups=[{"match":"layers.*.mlp.up","kind":"adamw","beta1":0.5}])"}));
  EXPECT_LOAM_ERROR(same.load(checkpoint, false), ErrorCode::kInvalidArgument, "optimizer.groups");
  EXPECT_NO_THROW(same.load(checkpoint, true));
  Trainer momentum = make(config_of({"optimizer.kind=sgd", "optimizer.momentum=0.9"}));
  Trainer plain = make(config_of({"optimizer.kind=sgd"}));
  CheckpointStore others(directory / "others");
  const VerifiedCheckpoint without(plain.save(others, {}));
  EXPECT_LOAM_ERROR(momentum.load(without, true), ErrorCode::kNotFound, "momentum.embedding");
}

class GroupsTest : public ::testing::Test {
 protected:
  // Rates and decay by name of the parameter.
  std::map<std::string, ParamSettings> settings_of(const std::vector<std::string>& settings) {
    TrainConfig config = testing::tiny_config();
    config.model.tied_embeddings = false;
    for (const std::string& setting : settings) config_set(config, setting);
    config = derive(config);
    ParamStore store;
    const Transformer transformer(store, config.model);
    const std::vector<ParamSettings> found = param_settings(store, config.optimizer);
    std::map<std::string, ParamSettings> named;
    for (int32_t i = 0; i < store.size(); ++i) named.emplace(store.spec(i).name, found[static_cast<size_t>(i)]);
    return named;
  }
};

TEST_F(GroupsTest, KindsAndPatternsAndTheLastOneCounts) {
  const auto found = settings_of({R"(optimizer.groups=[{"match":"matrix","lr_scale":0.5},{"match":"head","lr_scale":2},
      {"match":"layers.*.attention.*","lr_scale":0.25,"weight_decay":0.3},{"match":"layers.1.attention.ou?"},
      {"match":"embedding","lr_scale":0},{"match":"vector","weight_decay":0.01}])"});
  const auto expect = [&](const std::string& name, double lr_scale, double weight_decay) {
    EXPECT_EQ(found.at(name), (ParamSettings{lr_scale, weight_decay, false, {OptimizerKind::adamw, 0.9, 0.95, 1e-8}}))
        << name;
  };
  expect("layers.0.mlp.up", 0.5, 0.1);
  expect("head", 2, 0.1);
  expect("layers.0.attention.qkv", 0.25, 0.3);
  expect("layers.0.attention.out", 0.25, 0.3);
  expect("layers.1.attention.out", 1, 0.1);  // the last entry as a whole
  expect("embedding", 0, 0.1);
  expect("norm.weight", 1, 0.01);
  expect("layers.0.attention_norm.weight", 1, 0.01);
}

TEST_F(GroupsTest, EveryGroupMayHaveARuleOfItsOwn) {
  const auto found = settings_of({"optimizer.kind=lion", R"(optimizer.groups=[{"match":"embedding","kind":"adamw"},
      {"match":"head","kind":"muon"},{"match":"layers.0.*","kind":"muon","beta1":0.5},{"match":"norm.*","beta2":0.7}])"});
  const auto is = [&](const std::string& name, OptimizerKind kind, double beta1, double beta2, bool orthogonal) {
    EXPECT_EQ(found.at(name).rule, (RuleSettings{kind, beta1, beta2, 1e-8})) << name;
    EXPECT_EQ(found.at(name).orthogonal, orthogonal) << name;
  };
  is("embedding", OptimizerKind::adamw, 0.9, 0.95, false);
  is("head", OptimizerKind::muon, 0.9, 0.95, false);  // no matrix of a layer: by AdamW
  is("layers.0.mlp.up", OptimizerKind::muon, 0.5, 0.95, true);
  is("layers.0.mlp_norm.weight", OptimizerKind::muon, 0.5, 0.95, false);
  is("layers.1.mlp.up", OptimizerKind::lion, 0.9, 0.99, false);
  is("norm.weight", OptimizerKind::lion, 0.9, 0.7, false);
}

TEST_F(GroupsTest, MuonTakesTheMatricesOfTheLayers) {
  for (const auto& [name, settings] : settings_of({"optimizer.kind=muon"})) {
    EXPECT_EQ(settings.orthogonal, name.starts_with("layers.") && !name.ends_with("weight")) << name;
    EXPECT_EQ(settings.weight_decay, name.ends_with("weight") ? 0 : 0.1) << name;
  }
}

// Of four times the base width: Adam's rates of hidden matrices are a quarter (Yang et al. 2022, table 8), orthogonal
// steps need none of it, and those of AdamW's size half.
TEST_F(GroupsTest, WidthScalesTheRatesThatNeedIt) {
  const std::string base = "model.mup_base_dim=8", muon = "optimizer.kind=muon";
  for (const auto& [settings, expected] : {std::pair{std::vector{base}, 0.25},
                                           {std::vector{base, muon, std::string("optimizer.muon_scale=original")}, 1.0},
                                           {std::vector{base, muon}, 0.5},
                                           {std::vector{muon}, 1.0}}) {
    const auto found = settings_of(settings);
    EXPECT_EQ(found.at("layers.0.mlp.up").lr_scale, expected);
    EXPECT_EQ(found.at("layers.1.attention.out").lr_scale, expected);
    EXPECT_EQ(found.at("embedding").lr_scale, 1);
    EXPECT_EQ(found.at("norm.weight").lr_scale, 1);
  }
}

TEST_F(GroupsTest, AnEntryThatNamesNothingIsAnError) {
  EXPECT_LOAM_ERROR(settings_of({R"(optimizer.groups=[{"match":"head"},{"match":"embeding"}])"}),
                    ErrorCode::kInvalidArgument,
                    "optimizer.groups[1].match \"embeding\" names no parameter of the model; the nearest name is "
                    "\"embedding\"");
  EXPECT_LOAM_ERROR(settings_of({"model.tied_embeddings=true", R"(optimizer.groups=[{"match":"head"}])"}),
                    ErrorCode::kInvalidArgument,
                    "optimizer.groups[0].match \"head\" names no parameter of the model: the embedding is its head, "
                    "too (model.tied_embeddings)");
  EXPECT_LOAM_ERROR(settings_of({R"(optimizer.groups=[{"match":"layers.*.attention"}])"}), ErrorCode::kInvalidArgument,
                    "names no parameter");
}

TEST_F(GroupsTest, ASettingThatNoParameterUsesIsAnError) {
  const auto check = [](const std::string& kind, const std::string& groups) {
    TrainConfig config = testing::tiny_config();
    config.model.tied_embeddings = false;
    config_set(config, "optimizer.kind=" + kind);
    config_set(config, "optimizer.groups=[" + groups + "]");
    const TrainConfig whole = derive(config);
    check_optimizer_groups(whole);
    check_optimizer_groups(derive(whole));
  };
  const auto refused = [&](const std::string& kind, const std::string& groups, const std::string& message) {
    EXPECT_LOAM_ERROR(check(kind, groups), ErrorCode::kInvalidArgument, "optimizer.groups" + message);
  };
  // Muon has nothing to train in these, whatever the optimizer's own kind.
  for (const char* kind : {"adamw", "muon", "lion"}) {
    for (const char* match : {"vector", "head", "embedding", "norm.*", "layers.*.attention_norm.*"}) {
      refused(kind, fmt::format(R"({{"match":"{}","kind":"muon"}})", match),
              fmt::format("[0].kind muon has no effect: Muon trains matrices of the layers and \"{}\" matches none",
                          match));
    }
    EXPECT_NO_THROW(check(kind, R"({"match":"layers.1.*","kind":"muon"})"));
    EXPECT_NO_THROW(check(kind, R"({"match":"matrix","kind":"muon","lr_scale":2,"weight_decay":0})"));
  }
  // Nor has it betas and eps, but AdamW beside it has.
  for (const char* key : {"beta1", "beta2", "eps"}) {
    const auto group = [&](const char* match) { return fmt::format(R"({{"match":"{}","{}":0.5}})", match, key); };
    const std::string message = fmt::format("[1].{} has no effect: Muon, which trains all", key);
    refused("muon", R"({"match":"vector"},)" + group("matrix"), message);
    refused("muon", R"({"match":"vector"},)" + group("layers.0.mlp.up"), message);
    refused("adamw", fmt::format(R"({{"match":"vector"}},{{"match":"matrix","kind":"muon","{}":0.5}})", key), message);
    EXPECT_NO_THROW(check("muon", group("layers.0.*")));
    EXPECT_NO_THROW(check("muon", group("vector")));
    EXPECT_NO_THROW(check("muon", group("head")));
    EXPECT_NO_THROW(check("adamw", group("matrix")));
    EXPECT_NO_THROW(check("adam", group("matrix")));
    refused("sgd", group("matrix"), fmt::format("[0].{} has no effect: sgd has no use for it", key));
  }
  refused("lion", R"({"match":"matrix","eps":1e-6})", "[0].eps has no effect: lion has no use for it");
  refused("adamw", R"({"match":"matrix","kind":"adagrad","beta1":0.5})", "[0].beta1 has no effect: adagrad");
  refused("adamw", R"({"match":"matrix","kind":"rmsprop","beta2":0.5})", "[0].beta2 has no effect: rmsprop");
  EXPECT_NO_THROW(check("lion", R"({"match":"matrix","beta1":0.5,"beta2":0.5})"));
  EXPECT_NO_THROW(check("adagrad", R"({"match":"matrix","eps":1e-6})"));
  EXPECT_NO_THROW(check("adamw", R"({"match":"matrix","kind":"rmsprop","eps":1e-6})"));
  // Of the entries that match the last counts.
  refused("adamw", R"({"match":"head","lr_scale":2},{"match":"*d"},{"match":"h*"})",
          "[0] (\"head\") has no effect: entries behind it match all of its parameters");
  refused("muon", R"({"match":"layers.*","beta1":0.5},{"match":"vector"})", "[0].beta1 has no effect");
  EXPECT_NO_THROW(check("adamw", R"({"match":"layers.*","lr_scale":2},{"match":"layers.0.*"})"));
}

// Runs lie side by side in the groups of the store, hold each parameter once, and each slice of it is a matrix.
TEST_F(GroupsTest, RunsCoverTheStore) {
  TrainConfig config = testing::tiny_config();
  config.optimizer.kind = OptimizerKind::muon;
  config_set(config, R"(optimizer.groups=[{"match":"layers.*.mlp.up","lr_scale":0.5}])");
  config = derive(config);
  const ExecResources resources = testing::test_resources(1);
  ParamStore store;
  const Transformer transformer(store, config.model);
  store.allocate(resources.context, DType::f32, true);
  const OptimizerGroups runs = optimizer_groups(store, config.optimizer);
  int64_t elements = 0, all = 0;
  for (const OptimGroup& run : runs.groups) elements += run.weight.numel();
  for (const ParamGroup& group : store.groups()) all += group.weight.numel();
  EXPECT_EQ(elements, all);
  for (int32_t i = 0; i < store.size(); ++i) {
    const OptimizerGroups::Place& place = runs.places[static_cast<size_t>(i)];
    const OptimGroup& run = runs.groups[static_cast<size_t>(place.group)];
    const std::string& name = store.spec(i).name;
    EXPECT_EQ(run.weight.narrow(0, place.begin, 1).data<float>(), store.value(i).data<float>()) << name;
    EXPECT_EQ(run.gradient.narrow(0, place.begin, 1).data<float>(), store.gradient(i).data<float>()) << name;
    EXPECT_EQ(run.lr_scale, name.ends_with("mlp.up") ? 0.5 : 1) << name;
    const auto matrices_from = [&](int64_t begin, int64_t rows, int64_t cols) {
      return std::count_if(run.matrices.begin(), run.matrices.end(), [&](const OptimMatrix& m) {
        return m.begin == place.begin + begin && m.rows == rows && m.cols == cols;
      });
    };
    if (name == "layers.1.attention.qkv") {  // 4 query heads and 2 of keys and of values, of 8
      EXPECT_EQ(matrices_from(0, 32, 32), 1);
      EXPECT_EQ(matrices_from(32 * 32, 16, 32), 1);
      EXPECT_EQ(matrices_from(48 * 32, 16, 32), 1);
    }
    EXPECT_EQ(run.matrices.empty(), !name.starts_with("layers.") || name.ends_with(".weight")) << name;
  }
}

}  // namespace
}  // namespace loam
