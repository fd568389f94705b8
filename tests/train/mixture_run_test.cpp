// Weights, stages and sources that change between two lives of a run, against a count by hand: rows say which source
// they are of and which of its windows they are.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "loam/train/run_data.h"
#include "loam/train/run_mixture.h"
#include "tests/harness/expect_error.h"
#include "tests/train/run_testing.h"

namespace loam {
namespace {

constexpr int64_t kLength = 8, kBatch = 4;
using Life = std::unique_ptr<Trainer>;
using Windows = std::map<std::string, std::vector<int64_t>>;  // by source, in the order in which they were read

class MixtureRunTest : public ::testing::Test {
 protected:
  MixtureRunTest() {
    set_log_level(LogLevel::kError);
    clear_interrupt();
    // Window w of source k is k, w / 50, w % 50, filling; an epoch of it is 7 + 6 k windows.
    for (int32_t k = 0; k < 5; ++k) {
      std::vector<int32_t> ids;
      for (int32_t w = 0; w < 7 + 6 * k; ++w) {
        ids.insert(ids.end(), {k, w / 50, w % 50});
        ids.resize(ids.size() + kLength - 3, 59 - k);
      }
      ids.push_back(testing::kEndOfText);
      windows_[name(k)] = 7 + 6 * k;
      testing::write_set(directory_ / name(k) / "train", {ids});
    }
    config_.model.context_length = kLength;
    config_.model.layers = 1;
    config_.model.dim = 16;
    config_.model.heads = 2;
    config_.model.kv_heads = 1;
    config_.batch = kBatch;
    config_.micro_batch = kBatch;
    config_.steps = 200;
    config_.val_every = 0;
    config_.sample_every = 0;
    config_.save_every = 0;
    config_.optimizer.schedule = ScheduleKind::constant;
    config_.data.sources = {source("a", 0.5), source("b", 0.3), source("c", 0.2)};
  }
  ~MixtureRunTest() override { set_log_level(LogLevel::kInfo); }

  static std::string name(int32_t k) { return std::string(1, static_cast<char>('a' + k)); }
  DataSourceConfig source(const std::string& name, double weight) const {
    return {name, (directory_ / name).string(), weight};
  }
  Life make() const {
    return std::make_unique<Trainer>(resources_.context, derive(config_), open_run_data(config_.data));
  }
  Life loaded(const Path& checkpoint) const {
    Life trainer = make();
    trainer->load(checkpoint, true);
    return trainer;
  }
  Path save(Trainer& trainer) {
    CheckpointStore store(directory_ / fmt::format("saved{}", ++saved_));
    return trainer.save(store, {});
  }
  std::string state_of(Trainer& trainer) {
    const Path path = save(trainer);
    return read_file(path / "model.safetensors") + read_file(path / "optimizer.safetensors") +
           read_checkpoint_state(path).at("mixture").dump();
  }
  static std::string rows_of(Trainer& trainer) {
    trainer.step();
    return trainer.describe_rows({}).dump();
  }

  // Takes steps and checks that, after each of their rows, every source has had its share within one row.
  void take(Trainer& trainer, int64_t steps, const std::map<std::string, double>& weights) {
    std::map<std::string, double> taken;
    double sum = 0, rows = 0;
    for (const auto& [name, weight] : weights) sum += weight;
    for (int64_t step = 0; step < steps; ++step) {
      ASSERT_FALSE(trainer.step().skipped);
      const Json described = trainer.describe_rows({});
      for (const Json& row : described.as_array()) {
        const auto& ids = row.at("ids").as_array();
        const std::string from = name(static_cast<int32_t>(ids[0].as_int()));
        ASSERT_TRUE(weights.contains(from)) << from;
        read_[from].push_back(50 * ids[1].as_int() + ids[2].as_int());
        targets_[from] += row.at("targets").as_int();
        ++taken[from];
        ++rows;
        for (const auto& [name, weight] : weights) ASSERT_LT(std::abs(taken[name] - rows * weight / sum), 1) << name;
      }
    }
  }

  // Without a permutation windows come in order, whatever happened to the mixture.
  void expect_in_order() {
    for (const auto& [name, read] : read_) {
      for (size_t i = 0; i < read.size(); ++i) {
        ASSERT_EQ(read[i], static_cast<int64_t>(i) % windows_[name]) << name << " " << i;
      }
    }
  }
  void expect_targets(const Trainer& trainer) {
    std::map<std::string, int64_t> found;
    for (const RunSource& source : trainer.sources()) found[source.name] = source.targets;
    EXPECT_EQ(found, targets_);
  }

  // Four changes: other weights, one source dropped and one new in front, stages and the dropped one again, and all
  // that there are. `next` is asked for the trainer of the next life.
  template <class Next>
  Life live(const Next& next) {
    Life trainer = make();
    take(*trainer, 7, {{"a", 5}, {"b", 3}, {"c", 2}});
    config_.data.sources = {source("a", 1), source("b", 1), source("c", 6)};
    next(trainer);
    take(*trainer, 5, {{"a", 1}, {"b", 1}, {"c", 6}});
    config_.data.sources = {source("d", 2), source("c", 1), source("a", 1)};
    next(trainer);
    take(*trainer, 9, {{"d", 2}, {"c", 1}, {"a", 1}});
    config_.data.sources = {source("b", 1), source("d", 1), source("e", 1)};
    // Steps 0, 24 and 40 of 200: the first one ends 3 steps from here.
    config_.data.stages = {{0, {1, 2, 0}}, {0.12, {1, 0, 4}}, {0.2, {0, 1, 1}}};
    next(trainer);
    take(*trainer, 3, {{"b", 1}, {"d", 2}});
    take(*trainer, 16, {{"b", 1}, {"e", 4}});
    take(*trainer, 4, {{"d", 1}, {"e", 1}});
    config_.data.stages.clear();
    config_.data.sources = {source("e", 1), source("a", 0.25), source("b", 2), source("c", 0.75), source("d", 4)};
    next(trainer);
    take(*trainer, 30, {{"a", 1}, {"b", 8}, {"c", 3}, {"d", 16}, {"e", 4}});
    return trainer;
  }

  testing::TempDir directory_;
  TrainConfig config_ = testing::tiny_config();
  ExecResources resources_ = make_exec_resources(Device{}, 1);
  int saved_ = 0;
  std::map<std::string, int64_t> windows_, targets_;  // of each source: of an epoch; of what was read
  Windows read_;
};

TEST_F(MixtureRunTest, EverySourceGoesOnWhereItStood) {
  config_.data.shuffle = false;
  const Life trainer = live([&](Life& t) { t = loaded(save(*t)); });
  expect_in_order();
  expect_targets(*trainer);
  EXPECT_EQ(read_["a"].size() + read_["b"].size() + read_["c"].size() + read_["d"].size() + read_["e"].size(),
            74u * kBatch);
  for (const auto& [name, read] : read_) EXPECT_GT(read.size(), static_cast<size_t>(windows_[name])) << name;
}

// With keys of their own: what a source gives is what it gives in a run that never changed.
TEST_F(MixtureRunTest, KeysStayWithTheirSources) {
  const TrainConfig first = config_;
  live([&](Life& t) { t = loaded(save(*t)); });
  const Windows changed = std::exchange(read_, {});
  config_ = first;
  config_.data.sources = {source("a", 1), source("b", 1), source("c", 1), source("d", 1), source("e", 1)};
  Life plain = make();
  take(*plain, 150, {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}});
  for (const auto& [name, read] : changed) {
    ASSERT_LE(read.size(), read_[name].size());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), read_[name].begin())) << name;
    EXPECT_FALSE(std::is_sorted(read.begin(), read.begin() + windows_[name]));
  }
}

// A kill before, at and behind every change, one without a checkpoint since the change too.
TEST_F(MixtureRunTest, KilledAroundAChangeIsTheSameRun) {
  Life whole = live([&](Life& t) { t = loaded(save(*t)); });
  const std::string expected = state_of(*whole), next_rows = rows_of(*whole);
  Windows read = std::exchange(read_, {});
  config_.data.sources = {source("a", 0.5), source("b", 0.3), source("c", 0.2)};
  Life killed = live([&](Life& t) {
    const Path saved = save(*t);
    Life lost = loaded(saved);
    const std::string rows = rows_of(*lost);  // never saved
    t = loaded(saved);
    Life again = loaded(save(*t));
    EXPECT_EQ(rows_of(*again), rows);
    Life kept = loaded(save(*again));  // a step behind the change
    again->step();
    kept->step();
    EXPECT_EQ(state_of(*kept), state_of(*again));
    t = loaded(save(*t));
  });
  EXPECT_EQ(read_, read);
  EXPECT_EQ(state_of(*killed), expected);
  EXPECT_EQ(rows_of(*killed), next_rows);
}

// From behind a change to a checkpoint before it: what was left out stays left out, and what follows is what would
// have followed.
TEST_F(MixtureRunTest, ARewindAcrossAChangeGoesOnBehindTheSpike) {
  Life trainer = make();
  take(*trainer, 3, {{"a", 5}, {"b", 3}, {"c", 2}});
  const Path before = save(*trainer);
  const std::map<std::string, int64_t> targets = targets_;
  trainer->step();
  const Path changed = save(*trainer);
  config_.data.sources = {source("d", 1), source("a", 3)};
  Life whole = loaded(changed), rewound = loaded(changed);
  for (int step = 0; step < 5; ++step) {
    whole->step();
    rewound->step();
  }
  whole->step();  // the spike
  StepResult spike;
  spike.spike = Spike{"loss", 9, 1, 2};
  rewound->rewind(VerifiedCheckpoint(before), spike);
  EXPECT_EQ(rewound->steps_done(), 3);
  for (const RunSource& source : rewound->sources()) {
    EXPECT_EQ(source.targets, source.name == "d" ? 0 : targets.at(source.name)) << source.name;
  }
  Life resumed = loaded(save(*rewound));
  const auto places = [](Life& t) {
    t->step();
    std::string text;
    const Json rows = t->describe_rows({});
    for (const Json& row : rows.as_array()) text += row.at("sample").dump() + row.at("ids").dump();
    return text;
  };
  for (int step = 0; step < 6; ++step) {
    const std::string expected = places(whole);
    EXPECT_EQ(places(rewound), expected);
    EXPECT_EQ(places(resumed), expected);
  }
  EXPECT_EQ(state_of(*resumed), state_of(*rewound));
  // And a change behind that.
  config_.data.sources = {source("d", 1), source("a", 1)};
  config_.data.shuffle = false;
  Life last = loaded(save(*rewound));
  EXPECT_EQ(last->mixture().first_sample(), 16 * kBatch);  // 9 steps in all, and 7 batches left out
}

TEST_F(MixtureRunTest, SetsUnderAnotherNameAreTheSame) {
  config_.data.shuffle = false;
  Life trainer = make();
  take(*trainer, 5, {{"a", 5}, {"b", 3}, {"c", 2}});
  config_.data.sources[1].name = "books";
  config_.data.sources[1].weight = 3;
  trainer = loaded(save(*trainer));
  take(*trainer, 5, {{"a", 5}, {"b", 30}, {"c", 2}});
  expect_in_order();
  config_.data.sources[1] = source("d", 1);
  config_.data.sources[1].name = "a";
  config_.data.sources[0].name = "z";
  Life other = make();
  EXPECT_LOAM_ERROR(other->load(save(*trainer), true), ErrorCode::kInvalidArgument, "fingerprint of train.a");
}

TEST_F(MixtureRunTest, OneSourceBecomesSeveral) {
  config_.data.shuffle = false;
  const std::vector<DataSourceConfig> sources = config_.data.sources;
  config_.data.sources.clear();
  config_.data.path = (directory_ / "a").string();
  Life trainer = make();
  take(*trainer, 3, {{"a", 1}});
  config_.data.path.clear();
  config_.data.sources = sources;
  trainer = loaded(save(*trainer));
  take(*trainer, 6, {{"a", 5}, {"b", 3}, {"c", 2}});
  expect_in_order();
  expect_targets(*trainer);
}

// Stages begin at shares of the steps, which a branch may change.
TEST_F(MixtureRunTest, StagesOfABranchAreThoseOfItsSteps) {
  config_.data.shuffle = false;
  config_.data.stages = {{0, {1, 0, 0}}, {0.5, {0, 1, 3}}};
  config_.steps = 20;
  Life trainer = make();
  take(*trainer, 10, {{"a", 1}});
  take(*trainer, 2, {{"b", 1}, {"c", 3}});
  const Path saved = save(*trainer);
  config_.steps = 40;
  Life run = make();
  EXPECT_LOAM_ERROR(run->load(saved, false), ErrorCode::kInvalidArgument, "steps: 20 -> 40");
  Life branch = make();
  branch->load(VerifiedCheckpoint(saved), false, true);
  take(*branch, 8, {{"a", 1}});
  Life again = loaded(save(*branch));
  take(*again, 20, {{"b", 1}, {"c", 3}});
  expect_in_order();
  expect_targets(*again);
}

// What a checkpoint is given instead of its mixture; null for a checkpoint that is older than it.
class StateTest : public MixtureRunTest {
 protected:
  Path with_mixture(const Path& checkpoint, const Json& mixture) {
    Json state = read_checkpoint_state(checkpoint);
    std::erase_if(state.as_object(), [](const Json::Member& m) { return m.first == "mixture"; });
    if (!mixture.is_null()) state["mixture"] = mixture;
    CheckpointStore store(directory_ / fmt::format("given{}", ++saved_));
    const Path copy = store.save(state.at("step").as_int(), {}, state, {});
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      std::filesystem::copy_file(checkpoint / file, copy / file);
    }
    return copy;
  }
};

TEST_F(StateTest, OlderCheckpointsGoOn) {
  config_.data.stages = {{0, {1, 1, 0}}, {0.02, {1, 0, 3}}};
  config_.data.shuffle = false;
  Life trainer = make();
  take(*trainer, 4, {{"a", 1}, {"b", 1}});
  take(*trainer, 3, {{"a", 1}, {"c", 3}});
  const Path saved = save(*trainer), older = with_mixture(saved, {});
  Life same = loaded(older), expected = loaded(saved);
  EXPECT_EQ(rows_of(*same), rows_of(*expected));
  EXPECT_EQ(same->mixture().first_sample(), 0);
  // Every target counts: 11, 8 and 9 rows, and those of the step.
  const Life counted = loaded(older);
  EXPECT_EQ(counted->sources()[0].targets, 11 * kLength);
  EXPECT_EQ(counted->sources()[1].targets, 8 * kLength);
  EXPECT_EQ(counted->sources()[2].targets, 9 * kLength);
  config_.data.stages.clear();
  config_.data.sources = {source("e", 1), source("b", 1)};
  Life changed = loaded(older);
  take(*changed, 20, {{"e", 1}, {"b", 1}});
  expect_in_order();
}

TEST_F(StateTest, HostileMixturesNameTheFile) {
  Life trainer = make();
  trainer->step();
  config_.data.sources[0].weight = 3;
  trainer = loaded(save(*trainer));
  trainer->step();
  const Path saved = save(*trainer);
  const Json good = read_checkpoint_state(saved).at("mixture");
  EXPECT_EQ(good.at("first_sample").as_int(), kBatch);
  Life reader = make();
  reader->load(with_mixture(saved, good), false);
  const auto refuses = [&](const auto& spoil) {
    Json mixture = good;
    spoil(mixture, mixture["sources"].as_array());
    const Path copy = with_mixture(saved, mixture);
    EXPECT_LOAM_ERROR(reader->load(copy, true), ErrorCode::kBadFormat, copy.string());
  };
  refuses([](Json& m, auto&) { m = Json("x"); });
  refuses([](Json& m, auto&) { m["first_sample"] = 3 * kBatch; });  // behind what was taken
  refuses([](Json& m, auto&) { m["first_sample"] = -1; });
  refuses([](Json& m, auto&) { m["first_sample"] = 0; });
  refuses([](Json& m, auto&) { m["sources"] = "x"; });
  refuses([](Json&, auto& sources) { sources.pop_back(); });
  refuses([](Json&, auto& sources) { sources[1]["name"] = "a"; });
  refuses([](Json&, auto& sources) { sources[1]["name"] = "z"; });
  refuses([](Json&, auto& sources) { sources[1]["fingerprint"] = 1; });
  refuses([](Json&, auto& sources) { sources[0]["taken"] = -1; });
  refuses([](Json&, auto& sources) { sources[0]["taken"] = INT64_MAX; });
  refuses([](Json&, auto& sources) { sources[0]["targets"] = INT64_MAX; });
}

// Through the front door: a run in lives of other mixtures, and a branch.
TEST_F(MixtureRunTest, RunsAndBranchesMayChangeTheirMixture) {
  config_.log_every = 1;
  const auto run = [&](const std::string& out, int64_t steps, bool allow, const std::string& branch = "") {
    config_.steps = steps;
    RunOptions options;
    options.out = directory_ / out;
    options.allow_changed_config = allow;
    if (!branch.empty()) options.branch = directory_ / branch / "checkpoints" / "step-00000010";
    return run_training(resources_.context, config_, options).steps;
  };
  config_.keep_last = 100;
  for (const char* out : {"whole", "cut"}) run(out, 10, false);
  config_.data.sources = {source("d", 1), source("a", 3)};
  EXPECT_LOAM_ERROR(run("whole", 20, false), ErrorCode::kInvalidArgument, "--allow-changed-config");
  EXPECT_EQ(run("whole", 20, true), 20);
  EXPECT_EQ(run("cut", 13, true), 13);
  EXPECT_EQ(run("cut", 20, false), 20);
  EXPECT_EQ(testing::final_state(directory_ / "cut"), testing::final_state(directory_ / "whole"));
  EXPECT_EQ(testing::curve_of(directory_ / "cut"), testing::curve_of(directory_ / "whole"));
  EXPECT_EQ(run("branch", 20, true, "whole"), 20);
  EXPECT_EQ(testing::final_state(directory_ / "branch"), testing::final_state(directory_ / "whole"));
  // 40 rows of 5, 3 and 2, then 40 of 1 and 3.
  const auto newest = CheckpointStore(directory_ / "branch/checkpoints").newest_complete();
  config_.data.sources = {source("b", 1)};
  Life trainer = loaded(newest->path);
  std::map<std::string, int64_t> rows, targets;
  const Json mixture = read_checkpoint_state(save(*trainer)).at("mixture");
  for (const Json& one : mixture.at("sources").as_array()) {
    rows[one.at("name").as_string()] = one.at("taken").as_int();
    targets[one.at("name").as_string()] = one.at("targets").as_int();
  }
  EXPECT_EQ(rows, (std::map<std::string, int64_t>{{"a", 50}, {"b", 12}, {"c", 8}, {"d", 10}}));
  const Json last = testing::records_of(directory_ / "branch", "train").back().at("tokens_by_source");
  for (const auto& [name, count] : targets) EXPECT_EQ(last.at(name).as_int(), count) << name;
  EXPECT_EQ(last.as_object().size(), 4u);
}

}  // namespace
}  // namespace loam
