#include "loam/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "loam/format/safetensors.h"
#include "loam/kernels/kernel_table.h"
#include "loam/nn/sequence.h"
#include "loam/ops/linear_log_prob.h"
#include "loam/optim/schedule.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/sanitizers.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

using testing::tiny_config;

using State = std::map<std::string, std::vector<float>>;

// Everything that a checkpoint holds of a trainer, read back from one.
State state_of(Trainer& trainer, const Path& directory) {
  CheckpointStore store(directory);
  const Path path = trainer.save(store, {});
  State state;
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const SafetensorsFile file(path / name);
    for (const std::string& tensor : file.names()) {
      const auto values = file.tensor(tensor).span<float>();
      state[std::string(name) + ":" + tensor].assign(values.begin(), values.end());
    }
  }
  return state;
}

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() : TrainerTest(1) {}

  std::shared_ptr<TokenSet> set(const std::string& name) {
    return std::make_shared<TokenSet>(directory / "data" / name);
  }
  Trainer make(const TrainConfig& config) { return Trainer(ctx, derive(config), set("train"), set("val")); }
  // Replaces the training set.
  void write_train(const std::vector<std::vector<int32_t>>& documents) {
    std::filesystem::remove_all(directory / "data" / "train");
    testing::write_set(directory / "data" / "train", documents);
  }

  testing::TempDir directory;
  explicit TrainerTest(int threads) : resources(testing::test_resources(threads)) {
    testing::write_data(directory / "data");
  }
  ExecResources resources;
  ExecContext ctx = resources.context;
};

std::vector<double> gradients_of(Trainer& trainer) {
  std::vector<double> all;
  ParamStore& weights = *trainer.model().weights;
  for (int32_t i = 0; i < weights.size(); ++i) {
    for (const float x : weights.gradient(i).span<float>()) all.push_back(x);
  }
  return all;
}

double relative(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

// A document of this one token has nothing to learn from, and nothing before it learns it.
constexpr int32_t kAlone = 5;

constexpr int64_t kRaggedRows = testing::kSanitized ? 8 : 32;

// Rows of very unequal worth: 3 targets, 300 targets, none. With documents masked, a document of n tokens has n - 1
// targets.
TrainConfig ragged_config() {
  TrainConfig config = tiny_config();
  config.model.context_length = 301;
  config.data.shuffle = false;
  config.batch = kRaggedRows;
  config.optimizer.warmup_steps = 0;
  return config;
}

std::vector<std::vector<int32_t>> ragged_documents() {
  std::vector<std::vector<int32_t>> documents;
  const auto fill_row = [&](int64_t first_document) {
    if (first_document > 1) documents.push_back(testing::make_document(first_document, documents.size()));
    for (int64_t i = first_document > 1 ? first_document : 0; i < 301; ++i) documents.push_back({kAlone});
  };
  for (int64_t row = 0; row < kRaggedRows; ++row) fill_row(row % 3 == 0 ? 4 : row % 3 == 1 ? 301 : 0);
  documents.push_back({kAlone});
  return documents;
}

// Mean of -log p over all targets of the first `rows` rows, each row alone and through the op that does not fuse loss
// and gradient.
struct RowLosses {
  double mean_of_targets = 0, mean_of_rows = 0;
  std::vector<int64_t> targets;
};
RowLosses losses_by_row(const ExecContext& ctx, Trainer& trainer, const std::shared_ptr<TokenSet>& set, int64_t rows) {
  const Loader loader(set,
                      {.length = trainer.config().data.length, .mask_documents = true, .shuffle = false, .seed = 0});
  RowLosses out;
  double total = 0, means = 0;
  int64_t count = 0, rows_with_targets = 0;
  for (int64_t row = 0; row < rows; ++row) {
    TokenBatch batch;
    loader.fill(row, 1, batch);
    const auto tensor = [&](const std::vector<int32_t>& v) {
      return Tensor::from<int32_t>(*ctx.arena, {1, batch.length}, v);
    };
    const Context context(ctx);
    FullSequence sequence(tensor(batch.positions), tensor(batch.first_key));
    const Model& model = trainer.model();
    const Var hidden = model.transformer->hidden(context, tensor(batch.tokens), sequence);
    const auto result = ops::linear_log_prob(context, hidden, model.transformer->head(), tensor(batch.targets));
    double loss = 0;
    for (const float logp : result.logp.value.span<float>()) loss -= logp;
    const int64_t targets = batch.target_count();
    out.targets.push_back(targets);
    total += loss;
    count += targets;
    if (targets > 0) {
      means += loss / static_cast<double>(targets);
      ++rows_with_targets;
    }
  }
  out.mean_of_targets = total / static_cast<double>(count);
  out.mean_of_rows = means / static_cast<double>(rows_with_targets);
  return out;
}

TEST_F(TrainerTest, AccumulationEqualsOneBatchWithRaggedTargets) {
  write_train(ragged_documents());
  std::vector<double> whole;
  double whole_loss = 0;
  for (const int64_t micro_batch : {kRaggedRows, int64_t{1}, kRaggedRows / 4}) {
    TrainConfig config = ragged_config();
    config.micro_batch = micro_batch;
    Trainer trainer = make(config);
    const RowLosses expected = losses_by_row(ctx, trainer, set("train"), kRaggedRows);
    ASSERT_EQ((std::vector<int64_t>{expected.targets.begin(), expected.targets.begin() + 3}),
              (std::vector<int64_t>{3, 300, 0}));
    const StepResult result = trainer.step();
    EXPECT_EQ(result.targets, (kRaggedRows + 1) / 3 * 303);
    EXPECT_FALSE(result.skipped);
    EXPECT_NEAR(*result.loss, expected.mean_of_targets, 1e-6 * *result.loss);
    EXPECT_GT(std::abs(expected.mean_of_rows - expected.mean_of_targets), 1e-3);  // the mean of means is another number
    const std::vector<double> gradients = gradients_of(trainer);
    double norm = 0;
    for (const double g : gradients) norm += g * g;
    EXPECT_NEAR(*result.grad_norm, std::sqrt(norm), 1e-5 * *result.grad_norm);
    if (whole.empty()) {
      whole = gradients;
      whole_loss = *result.loss;
    } else {
      EXPECT_LT(relative(gradients, whole), 1e-6) << "micro-batches of " << micro_batch;
      EXPECT_NEAR(*result.loss, whole_loss, 1e-6 * whole_loss);
    }
  }
}

TEST_F(TrainerTest, AStepWithoutTargetsIsReportedAndChangesNothing) {
  write_train(std::vector<std::vector<int32_t>>(500, {kAlone}));
  Trainer trainer = make(tiny_config());
  State before = state_of(trainer, directory / "before");
  const StepResult result = trainer.step();
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(result.targets, 0);
  EXPECT_FALSE(result.loss);
  EXPECT_FALSE(result.grad_norm);
  EXPECT_EQ(result.step, 1);
  EXPECT_EQ(state_of(trainer, directory / "after"), before);
}

// As torch, whose optimizer counts the steps that it is called for: a step that is skipped leaves no trace in those
// that come after it, through a save too.
TEST_F(TrainerTest, SkippedStepsDoNotCountForTheOptimizer) {
  TrainConfig config = tiny_config();
  config.optimizer.schedule = ScheduleKind::constant;
  config.optimizer.warmup_steps = 0;
  config.data.shuffle = false;
  std::vector<std::vector<int32_t>> documents = testing::documents(120, 1);
  write_train(documents);
  Trainer plain = make(config);
  for (int i = 0; i < 2; ++i) plain.step();
  // As much as a batch of documents without a target before them.
  documents.insert(documents.begin(), static_cast<size_t>(config.batch * config.model.context_length), {kAlone});
  write_train(documents);
  Trainer first = make(config), skipping = make(config);
  EXPECT_TRUE(first.step().skipped);
  CheckpointStore store(directory / "skipped");
  const Path path = first.save(store, {});
  EXPECT_EQ(read_checkpoint_state(path).at("updates").as_int(), 0);
  skipping.load(path, false);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(skipping.step().skipped);
  EXPECT_EQ(skipping.steps_done(), 3);
  EXPECT_EQ(state_of(skipping, directory / "skipping"), state_of(plain, directory / "plain"));
}

TEST_F(TrainerTest, F32DoesNotDependOnThreads) {
  const ExecResources three = testing::test_resources(3);
  Trainer one = make(tiny_config()), other(three.context, derive(tiny_config()), set("train"), set("val"));
  for (int i = 0; i < 5; ++i) {
    one.step();
    other.step();
  }
  EXPECT_EQ(state_of(other, directory / "three"), state_of(one, directory / "one"));
}

TEST_F(TrainerTest, AStepThatIsGivenUpChangesNothingAndComesNext) {
  TrainConfig config = tiny_config();
  config.micro_batch = 1;
  Trainer whole = make(config), broken = make(config);
  for (int i = 0; i < 3; ++i) {
    whole.step();
    broken.step();
  }
  // Before every op of every micro-batch, forward and backward.
  std::vector<int64_t> asked;
  const auto ask_until = [&](size_t last) {
    return [&asked, last](int64_t done, int64_t all) {
      EXPECT_EQ(all, 4);
      asked.push_back(done);
      return asked.size() == last;
    };
  };
  for (const size_t last : {1, 2, 30, 60, 61, 100}) {
    asked.clear();
    const StepResult result = broken.step(ask_until(last));
    EXPECT_TRUE(result.abandoned);
    EXPECT_EQ(result.step, 3);
    EXPECT_EQ(asked.size(), last);
    EXPECT_EQ(broken.steps_done(), 3);
    EXPECT_EQ(state_of(broken, directory / "broken"), state_of(whole, directory / "whole"));
  }
  EXPECT_EQ(asked.front(), 0);
  EXPECT_GT(asked.back(), 0);
  const StepResult next = broken.step([](int64_t, int64_t) { return false; }), expected = whole.step();
  EXPECT_EQ(next.step, 4);
  EXPECT_EQ(*next.loss, *expected.loss);
  EXPECT_EQ(state_of(broken, directory / "broken"), state_of(whole, directory / "whole"));
}

// The same bits whether each step of a GPU is waited for or read late (ahead_test.cpp has what the CPU can show).
TEST_F(TrainerTest, AGpusStepsMayBeReadLate) {
  if (!testing::on_cuda()) GTEST_SKIP() << "LOAM_TEST_DEVICE=cuda runs it";
  TrainConfig config = tiny_config();
  config.numerics = NumericsLevel::deterministic;
  config.detail_every = 4;
  for (const ComputeDtype dtype : {ComputeDtype::f32, ComputeDtype::tf32, ComputeDtype::bf16, ComputeDtype::fp16}) {
    config.dtype = dtype;
    const ExecResources gpu = make_exec_resources({DeviceKind::cuda, 0});
    Trainer late(gpu.context, derive(config), set("train"), set("val"));
    Trainer waited(gpu.context, derive(config), set("train"), set("val"));
    const auto expect_equal = [&](const StepResult& result) {
      const StepResult expected = waited.step();
      EXPECT_EQ(result.step, expected.step);
      EXPECT_EQ(*result.loss, *expected.loss);
      EXPECT_EQ(*result.grad_norm, *expected.grad_norm);
      EXPECT_EQ(result.loss_scale, expected.loss_scale);
      EXPECT_EQ(to_json(result.layers).dump(), to_json(expected.layers).dump());
    };
    for (int64_t step = 1; step <= 20; ++step) {
      late.launch();
      const std::optional<StepResult> result = late.next_result(false);
      EXPECT_EQ(result.has_value(), step > 1);
      if (result) expect_equal(*result);
    }
    expect_equal(*late.next_result(true));
    EXPECT_EQ(state_of(late, directory / "late"), state_of(waited, directory / "waited"));
  }
}

TEST_F(TrainerTest, NumericsReachTheKernels) {
  static std::set<Numerics> seen;
  static KernelTable table = cpu_kernel_table();
  table.matmul.function = [](const ExecContext& c, const MatmulArgs& args) {
    seen.insert(c.numerics);
    cpu_kernel_table().matmul(c, args);
  };
  ctx.kernels = &table;
  for (const auto& [level, expected] : {std::pair(NumericsLevel::fast, Numerics::fast),
                                        std::pair(NumericsLevel::deterministic, Numerics::deterministic),
                                        std::pair(NumericsLevel::exact, Numerics::exact)}) {
    TrainConfig config = tiny_config();
    config.numerics = level;
    seen.clear();
    Trainer trainer = make(config);
    trainer.step();
    trainer.validate();
    EXPECT_EQ(seen, std::set<Numerics>{expected});
  }
}

TEST_F(TrainerTest, ABadWeightIsReportedAndSpreadsNoFurther) {
  Trainer trainer = make(tiny_config());
  trainer.step();
  Tensor norm = trainer.model().weights->find("norm.weight").value();
  norm.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  const State before = state_of(trainer, directory / "before");
  const StepResult result = trainer.step();
  EXPECT_TRUE(result.abandoned);
  EXPECT_EQ(result.step, 1);
  EXPECT_EQ(trainer.steps_done(), 1);
  EXPECT_FALSE(std::isfinite(*result.loss));
  const State after = state_of(trainer, directory / "after");
  const std::string other = "model.safetensors:embedding";
  EXPECT_EQ(after.at(other), before.at(other));
}

TEST_F(TrainerTest, MemoryIsSteadyFromStepToStep) {
  for (const ComputeDtype dtype : {ComputeDtype::f32, ComputeDtype::bf16, ComputeDtype::fp16}) {
    const ExecResources own = testing::test_resources(2);
    TrainConfig config = tiny_config();
    config.dtype = dtype;
    Trainer trainer(own.context, derive(config), set("train"), set("val"));
    ArenaStats second;
    for (int step = 1; step <= 5; ++step) {
      trainer.step();
      if (step == 2) second = own.arena->stats();
    }
    const ArenaStats fifth = own.arena->stats();
    EXPECT_EQ(fifth.total, second.total);
    EXPECT_EQ(fifth.bytes, second.bytes);
    EXPECT_EQ(fifth.total_peak, second.total_peak);
    EXPECT_EQ(fifth.reserved, second.reserved);
  }
}

TEST_F(TrainerTest, OverfitsOneBatch) {
  // Rows of one document that begin with different tokens: each target is determined by what its row shows.
  const std::vector<int32_t> document = testing::make_document(24 * 4 + 1, 11);
  ASSERT_EQ((std::set<int32_t>{document[0], document[24], document[48], document[72]}).size(), 4u);
  write_train({document});
  TrainConfig config = tiny_config();
  config.overfit_one_batch = true;
  config.optimizer.weight_decay = 0;
  config.steps = testing::kSanitized ? 100 : 400;
  config.micro_batch = 2;  // the batch stays whole, whatever the micro-batch
  Trainer trainer = make(config);
  StepResult result;
  while (trainer.steps_done() < config.steps) result = trainer.step();
  EXPECT_LT(*result.loss, testing::kSanitized ? 0.1 : 0.01);
}

TEST_F(TrainerTest, RefusesIdsThatTheModelLacks) {
  TrainConfig config = tiny_config();
  config.model.vocab_size = 60;
  EXPECT_LOAM_ERROR(make(config), ErrorCode::kInvalidArgument, "token ids up to 60, but model.vocab_size is 60");
}

TEST_F(TrainerTest, VocabularyComesFromTheData) {
  TrainConfig config = tiny_config();
  config.model.vocab_size = 0;
  EXPECT_EQ(config_for_data(config, set("train")->info()).model.vocab_size, 64);
  config.model.vocab_size = 100;
  EXPECT_EQ(config_for_data(config, set("train")->info()).model.vocab_size, 100);
}

TEST_F(TrainerTest, ValidationDoesNotDependOnTheBatch) {
  TrainConfig config = tiny_config();
  ValResult first;
  for (const int64_t micro_batch : {1, 2, 4}) {
    config.micro_batch = micro_batch;
    Trainer trainer = make(config);
    const ValResult result = *trainer.validate();
    const RowLosses expected = losses_by_row(ctx, trainer, set("val"), config.val_rows);
    EXPECT_NEAR(result.loss, expected.mean_of_targets, 1e-6 * result.loss);
    // The sets of these tests have 3 bytes a token.
    EXPECT_NEAR(*result.bits_per_byte, result.loss / std::log(2.0) / 3, 1e-12);
    if (first.targets == 0) first = result;
    EXPECT_EQ(result.targets, first.targets);
    EXPECT_NEAR(result.loss, first.loss, 1e-6 * first.loss);
  }
}

TEST_F(TrainerTest, WhatIsNotKnownIsNoNumber) {
  TrainConfig config = tiny_config();
  EXPECT_FALSE(Trainer(ctx, derive(config), set("train"), nullptr).validate());
  config.micro_batch = 1;
  Trainer trainer = make(config);
  EXPECT_FALSE(trainer.validate([](int64_t done, int64_t) { return done == 3; }));
  // A set that does not say how many bytes its text has.
  std::filesystem::remove_all(directory / "data" / "val");
  TokenSetWriter writer(directory / "data" / "val", set("train")->info());
  writer.add(testing::make_document(30, 5), 0);
  writer.finish();
  const auto result = make(config).validate();
  ASSERT_TRUE(result);
  EXPECT_GT(result->loss, 0);
  EXPECT_FALSE(result->bits_per_byte);
}

TEST_F(TrainerTest, ValidationTakesAllRowsOfAShortSet) {
  std::filesystem::remove_all(directory / "data" / "val");
  testing::write_set(directory / "data" / "val", {testing::make_document(10, 5)});
  TrainConfig config = tiny_config();
  config.val_rows = 0;
  Trainer trainer = make(config);
  EXPECT_EQ(trainer.validate()->targets, 9);
}

// `steps` steps with a save and a new Trainer after each of `breaks`.
struct History {
  std::vector<double> losses, rates, norms;
  State state;
  bool operator==(const History&) const = default;
};

class ResumeTest : public TrainerTest, public ::testing::WithParamInterface<ComputeDtype> {
 protected:
  ResumeTest() : TrainerTest(2) {}
  History train(const TrainConfig& config, int64_t steps, const std::vector<int64_t>& breaks, const std::string& name) {
    History history;
    auto trainer = std::make_unique<Trainer>(ctx, derive(config), set("train"), set("val"));
    CheckpointStore store(directory / name);
    while (trainer->steps_done() < steps) {
      const StepResult result = trainer->step();
      history.losses.push_back(*result.loss);
      history.rates.push_back(result.learning_rate);
      history.norms.push_back(*result.grad_norm);
      if (std::find(breaks.begin(), breaks.end(), result.step) == breaks.end()) continue;
      const Path path = trainer->save(store, Json::Object{{"note", result.step}});
      trainer = std::make_unique<Trainer>(ctx, derive(config), set("train"), set("val"));
      EXPECT_EQ(trainer->load(path, false).at("note").as_int(), result.step);
      EXPECT_EQ(trainer->steps_done(), result.step);
    }
    history.state = state_of(*trainer, directory / (name + "-end"));
    return history;
  }
};

TEST_P(ResumeTest, TwoHalvesAreTheWhole) {
  constexpr int64_t kSteps = testing::kSanitized ? 40 : 200;
  TrainConfig config = tiny_config();
  config.dtype = GetParam();
  config.steps = kSteps;
  const History whole = train(config, kSteps, {}, "whole");
  EXPECT_EQ(train(config, kSteps, {kSteps / 2}, "halves"), whole);
  EXPECT_EQ(train(config, 30, {1, 2, 17}, "pieces").losses,
            (std::vector<double>(whole.losses.begin(), whole.losses.begin() + 30)));
  // The learning rate is that of the whole run, and the loss learns something: an equality of nothing would prove
  // nothing.
  for (int64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(whole.rates[static_cast<size_t>(step)], learning_rate(config.optimizer, step, kSteps));
  }
  EXPECT_LT(whole.losses.back(), 0.7 * whole.losses.front());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ResumeTest,
                         ::testing::Values(ComputeDtype::f32, ComputeDtype::bf16, ComputeDtype::fp16),
                         [](const auto& p) { return config_detail::to_json(p.param).as_string(); });

class LoadTest : public TrainerTest {
 protected:
  LoadTest() : store(directory / "checkpoints") {
    Trainer trainer = make(tiny_config());
    for (int i = 0; i < 3; ++i) trainer.step();
    path = trainer.save(store, {});
  }
  CheckpointStore store;
  Path path;
};

TEST_F(LoadTest, RefusesAChangedConfigurationUnlessTold) {
  TrainConfig config = tiny_config();
  config.optimizer.lr = 0.5;
  config.model.rope_theta = 500;
  Trainer trainer = make(config);
  const std::string said = testing::error_of(ErrorCode::kInvalidArgument, [&] { trainer.load(path, false); });
  EXPECT_NE(said.find("optimizer.lr: 0.01 -> 0.5"), std::string::npos) << said;
  EXPECT_NE(said.find("model.rope_theta: 10000.0 -> 500.0"), std::string::npos) << said;
  EXPECT_EQ(trainer.steps_done(), 0);
  trainer.load(path, true);
  EXPECT_EQ(trainer.steps_done(), 3);
}

// auto is what the device has; from there on the run has that.
TEST_F(LoadTest, TheDtypeIsThatOfTheDeviceAndIsKept) {
  const auto on = [](DeviceKind kind, ComputeDtype dtype) {
    TrainConfig config;
    config.dtype = dtype;
    return config_for_device(config, {kind, 0}).dtype;
  };
  EXPECT_EQ(on(DeviceKind::cpu, ComputeDtype::automatic), ComputeDtype::f32);
  EXPECT_EQ(on(DeviceKind::cuda, ComputeDtype::automatic), ComputeDtype::bf16);
  for (const ComputeDtype dtype : {ComputeDtype::f32, ComputeDtype::bf16, ComputeDtype::fp16}) {
    EXPECT_EQ(on(DeviceKind::cpu, dtype), dtype);
    EXPECT_EQ(on(DeviceKind::cuda, dtype), dtype);
  }
  EXPECT_EQ(on(DeviceKind::cuda, ComputeDtype::tf32), ComputeDtype::tf32);
  EXPECT_LOAM_ERROR(on(DeviceKind::cpu, ComputeDtype::tf32), ErrorCode::kInvalidArgument, "dtype tf32 needs a GPU");
  // `path` was written under auto on the CPU.
  EXPECT_EQ(read_checkpoint_state(path).at("config").at("dtype").as_string(), "f32");
  TrainConfig elsewhere = tiny_config();
  elsewhere.dtype = on(DeviceKind::cuda, ComputeDtype::automatic);
  Trainer trainer = make(elsewhere);
  EXPECT_LOAM_ERROR(trainer.load(path, false), ErrorCode::kInvalidArgument, "dtype: \"f32\" -> \"bf16\"");
}

TEST_F(LoadTest, BookKeepingMayChange) {
  TrainConfig config = tiny_config();
  config.log_every = 3;
  config.val_every = 7;
  config.val_rows = 2;
  config.save_every = 9;
  config.keep_last = 5;
  config.sample_every = 4;
  config.sample_prompt = "x";
  config.sample_tokens = 3;
  config.data.path = "elsewhere";
  Trainer trainer = make(config);
  trainer.load(path, false);
  EXPECT_EQ(trainer.steps_done(), 3);
  config.steps = 50;  // a cosine has another shape then
  Trainer longer = make(config);
  EXPECT_LOAM_ERROR(longer.load(path, false), ErrorCode::kInvalidArgument, "steps: 40 -> 50");
}

// A checkpoint of a program that did not have a setting yet.
TEST_F(LoadTest, ASettingThatIsMissingHadItsDefault) {
  Json state = Json::parse(read_file(path / "state.json"));
  std::erase_if(state["config"].as_object(), [](const Json::Member& m) { return m.first == "numerics"; });
  std::erase_if(state.as_object(), [](const Json::Member& m) { return m.first == "updates"; });
  Trainer trainer = make(tiny_config());
  CheckpointStore older(directory / "older");
  const Path copy = older.save(3, {}, state, {});
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    std::filesystem::copy_file(path / name, copy / name);
  }
  trainer.load(copy, false);
  EXPECT_EQ(trainer.steps_done(), 3);
  CheckpointStore again(directory / "again");
  EXPECT_EQ(read_checkpoint_state(trainer.save(again, {})).at("updates").as_int(), 3);
  TrainConfig exact = tiny_config();
  exact.numerics = NumericsLevel::exact;
  Trainer other = make(exact);
  EXPECT_LOAM_ERROR(other.load(copy, false), ErrorCode::kInvalidArgument, "numerics: \"fast\" -> \"exact\"");
}

TEST_F(LoadTest, HostileStatesNameTheFile) {
  const Json good = Json::parse(read_file(path / "state.json"));
  CheckpointStore hostile(directory / "hostile");
  Trainer trainer = make(tiny_config());
  const auto refuses = [&](const std::string& key, const Json& value) {
    SCOPED_TRACE(key + " " + value.dump());
    Json state = good;
    state[key] = value;
    const Path copy = hostile.save(3, {}, state, {});
    EXPECT_LOAM_ERROR(trainer.load(copy, true), ErrorCode::kBadFormat, copy.string());
  };
  for (const char* key : {"version", "step", "updates", "samples", "threads", "config"}) refuses(key, "x");
  refuses("version", 2);
  refuses("step", -1);
  refuses("step", 2);  // the manifest says 3
  refuses("updates", 4);
  refuses("step", INT64_MAX);
  refuses("config", Json::parse(R"({"stepps": 3})"));
  EXPECT_EQ(trainer.steps_done(), 0);
}

TEST_F(LoadTest, StepsMayChangeUnderAConstantRate) {
  TrainConfig config = tiny_config();
  config.optimizer.schedule = ScheduleKind::constant;
  Trainer first = make(config);
  first.step();
  CheckpointStore other(directory / "constant");
  const Path constant = first.save(other, {});
  config.steps = 1000;
  Trainer longer = make(config);
  longer.load(constant, false);
  EXPECT_EQ(longer.steps_done(), 1);
}

TEST_F(LoadTest, RefusesOtherData) {
  write_train(testing::documents(120, 99));
  Trainer trainer = make(tiny_config());
  EXPECT_LOAM_ERROR(trainer.load(path, true), ErrorCode::kInvalidArgument, "the data are not those of the run");
}

TEST_F(LoadTest, RefusesAnotherShapeAndAnotherBatch) {
  TrainConfig config = tiny_config();
  config.model.ffn_dim = 192;
  Trainer wider = make(config);
  EXPECT_LOAM_ERROR(wider.load(path, true), ErrorCode::kBadFormat, "layers.0.mlp.up");
  config = tiny_config();
  config.batch = 8;
  Trainer larger = make(config);
  EXPECT_LOAM_ERROR(larger.load(path, true), ErrorCode::kInvalidArgument, "batch has changed");
}

TEST_F(LoadTest, RefusesATornCheckpoint) {
  std::filesystem::resize_file(path / "optimizer.safetensors",
                               std::filesystem::file_size(path / "optimizer.safetensors") - 1);
  Trainer trainer = make(tiny_config());
  EXPECT_LOAM_ERROR(trainer.load(path, false), ErrorCode::kBadFormat, "optimizer.safetensors");
}

TEST_F(TrainerTest, ExportedModelIsTheMasters) {
  TrainConfig config = tiny_config();
  Trainer trainer = make(config);
  for (int i = 0; i < 3; ++i) trainer.step();
  std::filesystem::create_directory(directory / "model");
  trainer.export_model(directory / "model");
  Model model = load_model(ctx, directory / "model", DType::f32);
  EXPECT_EQ(model.eos_ids, std::vector<int32_t>{testing::kEndOfText});
  ParamStore& weights = *trainer.model().weights;
  ASSERT_EQ(model.weights->size(), weights.size());
  for (int32_t i = 0; i < weights.size(); ++i) {
    const auto a = weights.value(i).span<float>(), b = model.weights->find(weights.name(i)).value().span<float>();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << weights.name(i);
  }
}

}  // namespace
}  // namespace loam
