// What training does with its data: order, packing, several sources and several validation sets.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/format/safetensors.h"
#include "loam/nn/sequence.h"
#include "loam/train/run_data.h"
#include "loam/train/trainer.h"
#include "tests/harness/expect_error.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

using testing::tiny_config;

// Everything that a checkpoint holds of a trainer, read back from one.
std::string state_of(Trainer& trainer, const Path& directory) {
  CheckpointStore store(directory);
  const Path path = trainer.save(store, {});
  return read_file(path / "model.safetensors") + read_file(path / "optimizer.safetensors");
}

std::vector<Json> records_of(const Path& run, const std::string& kind) {
  std::vector<Json> records;
  LineReader lines(open_input(run / "metrics.jsonl"));
  for (std::string line; lines.next(line);) {
    const Json record = Json::parse(line);
    if (record.at("kind").as_string() == kind) records.push_back(record);
  }
  return records;
}

class DataTest : public ::testing::Test {
 protected:
  DataTest() {
    set_log_level(LogLevel::kError);
    clear_interrupt();
    for (uint64_t k = 0; k < 3; ++k) testing::write_data(directory_ / names_[k], k + 1);
    config_.data.sources = {{"a", path("a"), 0.5}, {"b", path("b"), 0.3}, {"c", path("c"), 0.2}};
    config_.model.context_length = 16;
    config_.model.dim = 16;
    config_.model.heads = 2;
    config_.model.kv_heads = 1;
    config_.sample_every = 0;
  }
  ~DataTest() override { set_log_level(LogLevel::kInfo); }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  Trainer make() const { return Trainer(resources_.context, derive(config_), open_run_data(config_.data)); }
  RunSummary run(const std::string& name, bool allow_changed_config = false) const {
    RunOptions options;
    options.out = directory_ / name;
    options.allow_changed_config = allow_changed_config;
    return run_training(resources_.context, config_, options);
  }
  std::string refusal(ErrorCode code, const std::string& name) const {
    return testing::error_of(code, [&] { run(name); });
  }

  const std::vector<std::string> names_{"a", "b", "c"};
  testing::TempDir directory_;
  TrainConfig config_ = tiny_config();
  ExecResources resources_ = make_exec_resources(Device{}, 1);
};

// One source with an epoch of 19 rows, 4 a step: epochs end within the 5th step, the 10th and the 15th; 20 rows would
// end just between two.
TEST_F(DataTest, ResumedAroundTheEndOfAnEpochIsTheSameRun) {
  for (const int64_t rows : {19, 20}) {
    for (const Packing packing : {Packing::stream, Packing::best_fit}) {
      const std::string name = fmt::format("epochs{}", rows);
      std::filesystem::remove_all(directory_ / name);
      testing::write_set(directory_ / name / "train", {testing::make_document(rows * 16 + 1, 3)});
      config_.data.sources.clear();
      config_.data.path = path(name);
      config_.data.packing = packing;
      Trainer whole = make();
      const int64_t epoch = whole.mixture().loader(0).samples_per_epoch();
      EXPECT_EQ(epoch, packing == Packing::stream ? rows : rows + 1);  // the last token has a row of its own
      std::vector<double> losses;
      std::vector<std::string> states;
      for (int64_t step = 0; step < 16; ++step) {
        losses.push_back(*whole.step().loss);
        states.push_back(state_of(whole, directory_ / "whole"));
      }
      for (const int64_t stop : {4, 5, 6, 9, 10, 11}) {
        CheckpointStore store(directory_ / fmt::format("stop{}", stop));
        Trainer before = make();
        for (int64_t step = 0; step < stop; ++step) before.step();
        const Path saved = before.save(store, {});
        Trainer after = make();
        after.load(saved, false);
        for (int64_t step = stop; step < 16; ++step) {
          EXPECT_EQ(*after.step().loss, losses[static_cast<size_t>(step)]) << stop << " " << step;
        }
        EXPECT_EQ(state_of(after, directory_ / "after"), states.back()) << stop;
      }
    }
  }
}

// The validation set is another one each time, and the batch of training stays its own.
TEST_F(DataTest, ValidationsDoNotTouchTraining) {
  Trainer plain = make(), validated = make();
  std::vector<double> first;
  for (int step = 0; step < 12; ++step) {
    const double expected = *plain.step().loss;
    EXPECT_EQ(*validated.step().loss, expected);
    const std::string batch = validated.describe_rows({}).dump();
    for (size_t set = 0; set < 3; ++set) ASSERT_TRUE(validated.validate({}, set));
    EXPECT_EQ(validated.describe_rows({}).dump(), batch);
    first.push_back(validated.validate()->loss);
    EXPECT_EQ(validated.validate()->loss, first.back());
  }
  EXPECT_FALSE(validated.validate({}, 3));
  EXPECT_LT(first.back(), first.front());
  EXPECT_EQ(state_of(validated, directory_ / "v"), state_of(plain, directory_ / "p"));
}

TEST_F(DataTest, EverySetIsValidatedUnderItsName) {
  config_.steps = 20;
  const RunSummary summary = run("run");
  const auto val = records_of(directory_ / "run", "val");
  ASSERT_EQ(val.size(), 6u);
  Trainer trainer = make();
  CheckpointStore store(directory_ / "run/checkpoints");
  trainer.load(*store.newest_complete(), false);
  for (size_t set = 0; set < 3; ++set) {
    const Json& record = val[3 + set];
    EXPECT_EQ(record.at("set").as_string(), names_[set]);
    EXPECT_EQ(record.at("step").as_int(), 20);
    const auto expected = trainer.validate({}, set);
    EXPECT_EQ(record.at("loss").as_double(), expected->loss);
    EXPECT_EQ(record.at("bits_per_byte").as_double(), expected->bits_per_byte);
    EXPECT_EQ(trainer.data().val[set].set->fingerprint(), TokenSet(directory_ / names_[set] / "val").fingerprint());
    EXPECT_NE(expected->loss, val[3 + (set + 1) % 3].at("loss").as_double());
    EXPECT_EQ(summary.validations[set].first, names_[set]);
    EXPECT_EQ(summary.validations[set].second.loss, expected->loss);
  }
  EXPECT_EQ(summary.final_val_loss, summary.validations[0].second.loss);

  // A kill that left only the first of the three: the others are due.
  const Path metrics = directory_ / "run/metrics.jsonl";
  std::string kept;
  for (const std::string& line : {val[0].dump(), val[1].dump(), val[2].dump(), val[3].dump()}) kept += line + "\n";
  write_file_atomic(metrics, kept);
  run("run");
  const auto again = records_of(directory_ / "run", "val");
  ASSERT_EQ(again.size(), 6u);
  for (size_t i = 4; i < 6; ++i) EXPECT_EQ(again[i].at("loss"), val[i].at("loss"));
}

TEST_F(DataTest, ValidationSetsCanBeNamed) {
  config_.steps = 2;
  config_.data.validation = {{"books", path("b")}, {"web", path("c/val")}};
  const RunSummary summary = run("run");
  ASSERT_EQ(summary.validations.size(), 2u);
  EXPECT_EQ(summary.validations[1].first, "web");
  config_.data.validation[1].path = path("nowhere");
  EXPECT_NE(refusal(ErrorCode::kNotFound, "other").find("nowhere"), std::string::npos);
}

TEST_F(DataTest, OneSetIsWrittenAsEver) {
  config_.steps = 10;
  config_.data.sources.clear();
  config_.data.path = path("a");
  const RunSummary summary = run("run");
  EXPECT_TRUE(summary.validations.empty());
  const auto val = records_of(directory_ / "run", "val");
  ASSERT_EQ(val.size(), 1u);
  EXPECT_FALSE(val[0].find("set"));
  EXPECT_FALSE(records_of(directory_ / "run", "train")[0].find("tokens_by_source"));
  const Json state = read_checkpoint_state(CheckpointStore(directory_ / "run/checkpoints").newest_complete()->path);
  EXPECT_EQ(state.at("data").at("train").as_string(), TokenSet(directory_ / "a/train").fingerprint());
  EXPECT_EQ(state.at("data").at("val").as_string(), TokenSet(directory_ / "a/val").fingerprint());
  // The same source as a list of one gives the same weights.
  config_.data.path.clear();
  config_.data.sources = {{"a", path("a"), 3}};
  run("list");
  const auto weights = [&](const char* name) { return read_file(directory_ / name / "model/model.safetensors"); };
  EXPECT_EQ(weights("list"), weights("run"));
}

TEST_F(DataTest, TokensOfEverySourceAreCounted) {
  config_.steps = 40;
  config_.data.mask_documents = false;
  config_.data.stages = {{0, {1, 1, 0}}, {0.5, {0, 1, 3}}};
  run("run");
  const auto train = records_of(directory_ / "run", "train");
  ASSERT_EQ(train.size(), 40u);
  // 4 rows of 16 tokens a step: two each of a and b, then one of b and three of c.
  int64_t targets = 0;
  for (int64_t step = 1; step <= 40; ++step) {
    const int64_t first = std::min<int64_t>(step, 20), second = step - first;
    const Json& record = train[static_cast<size_t>(step - 1)];
    const Json& tokens = record.at("tokens_by_source");
    EXPECT_EQ(tokens.at("a").as_int(), 32 * first);
    EXPECT_EQ(tokens.at("b").as_int(), 32 * first + 16 * second);
    EXPECT_EQ(tokens.at("c").as_int(), 48 * second);
    targets += record.at("targets").as_int();
  }
  EXPECT_EQ(targets, 40 * 64);
  // Padding is no target, nor is what stands across the end of a document.
  config_.data.mask_documents = true;
  config_.data.packing = Packing::best_fit;
  run("packed");
  targets = 0;
  for (const Json& record : records_of(directory_ / "packed", "train")) {
    targets += record.at("targets").as_int();
    int64_t sum = 0;
    for (const auto& [name, tokens] : record.at("tokens_by_source").as_object()) sum += tokens.as_int();
    EXPECT_EQ(sum, targets);
  }
  EXPECT_LT(targets, 40 * 64);
}

TEST_F(DataTest, ResumedWithSeveralSourcesAndStagesIsTheSameRun) {
  config_.data.stages = {{0, {1, 1, 0}}, {0.5, {0, 1, 3}}};
  config_.data.packing = Packing::best_fit;
  Trainer whole = make();
  for (int step = 0; step < 40; ++step) whole.step();
  const std::string expected = state_of(whole, directory_ / "whole");
  for (const int stop : {19, 20, 21}) {  // around the change of stages
    CheckpointStore store(directory_ / fmt::format("stop{}", stop));
    Trainer before = make();
    for (int step = 0; step < stop; ++step) before.step();
    Trainer after = make();
    const Path saved = before.save(store, {});
    after.load(saved, false);
    for (int step = stop; step < 40; ++step) after.step();
    EXPECT_EQ(state_of(after, directory_ / "after"), expected) << stop;
  }
}

TEST_F(DataTest, OtherDataAndWeightsAreRefusedOnResume) {
  config_.steps = 10;
  run("run");
  const auto refused = [&](const std::string& part) {
    const std::string said = refusal(ErrorCode::kInvalidArgument, "run");
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  const TrainConfig before = config_;
  config_.data.sources[1].weight = 0.4;
  refused("data.sources[1].weight: 0.3 -> 0.4");
  config_ = before;
  config_.data.stages = {{0, {1, 1, 1}}};
  refused("data.stages[0].weights: not set -> [1.0,1.0,1.0]");
  config_ = before;
  config_.data.packing = Packing::best_fit;
  refused("data.packing: \"stream\" -> \"best_fit\"");
  config_ = before;
  config_.data.sources[2].path = path("a");
  refused("train.c");
  config_ = before;
  // Data that moved are the same data.
  std::filesystem::rename(directory_ / "c", directory_ / "moved");
  config_.data.sources[2].path = path("moved");
  EXPECT_EQ(run("run").steps, 10);
}

TEST_F(DataTest, SetsMayBeAddedAndValidationSetsLeftOut) {
  config_.steps = 10;
  run("run");
  const auto refused = [&](bool allowed, const std::string& part) {
    EXPECT_LOAM_ERROR(run("run", allowed), ErrorCode::kInvalidArgument, part);
  };
  const auto newest_sets = [&] {
    std::vector<std::string> names;
    for (const Json& val : records_of(directory_ / "run", "val")) {
      if (val.at("step").as_int() == config_.steps) names.push_back(val.at("set").as_string());
    }
    return names;
  };
  using Names = std::vector<std::string>;
  config_.steps = 12;
  config_.data.validation = {{"a", path("a")}, {"books", path("c/val")}};
  refused(false, "--allow-changed-config");
  EXPECT_EQ(run("run", true).steps, 12);
  EXPECT_EQ(newest_sets(), (Names{"a", "books"}));
  config_.steps = 14;
  config_.data.validation = {{"books", path("a/val")}};
  refused(true, "fingerprint of val.books");
  config_.data.validation = {{"books", path("c/val")}};
  EXPECT_EQ(run("run", true).steps, 14);
  EXPECT_EQ(newest_sets(), Names{"books"});
  testing::write_data(directory_ / "d", 9);
  config_.steps = 16;
  const std::vector<DataSourceConfig> sources = config_.data.sources;
  config_.data.sources.insert(config_.data.sources.begin(), {"d", path("d"), 0.2});
  refused(false, "--allow-changed-config");
  EXPECT_EQ(run("run", true).steps, 16);
  config_.steps = 18;
  config_.data.sources = {sources[0], sources[1]};
  refused(false, "--allow-changed-config");
  EXPECT_EQ(run("run", true).steps, 18);
  // A name stays that of its set.
  config_.data.sources = {sources[0], {"d", path("c"), 1}};
  refused(true, "(fingerprint of train.d); other data need a new name, and --allow-changed-config");
  config_.steps = 20;
  config_.data.sources[1].name = "new";
  EXPECT_EQ(run("run", true).steps, 20);
}

TEST_F(DataTest, ErrorsNameTheSource) {
  testing::write_set(directory_ / "short/train", {testing::make_document(5, 1)});
  config_.data.sources[1].path = path("short");
  EXPECT_LOAM_ERROR(check_run_data(derive(config_), open_run_data(config_.data)), ErrorCode::kInvalidArgument,
                    "data source \"b\": loader: the set has 5 tokens");
  config_.data.sources[1].path = path("b");
  config_.model.vocab_size = 32;
  EXPECT_LOAM_ERROR(check_run_data(derive(config_), open_run_data(config_.data)), ErrorCode::kInvalidArgument,
                    "data source \"a\": the training data have token ids up to 60");
}

TEST_F(DataTest, TokenizersMustAgree) {
  TokenSetInfo info;
  info.tokenizer_fingerprint = "another";
  info.vocab_size = testing::kVocab;
  info.end_of_text = testing::kEndOfText;
  TokenSetWriter writer(directory_ / "other/train", info);
  writer.add(testing::make_document(100, 1), 300);
  writer.finish();
  config_.data.sources[1] = {"strange", path("other"), 1};
  const std::string said = refusal(ErrorCode::kInvalidArgument, "run");
  for (const char* part : {"\"strange\"", "\"a\"", "another", "test"}) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  config_.data.sources[1] = {"b", path("b"), 1};
  config_.data.validation = {{"held out", path("other/train")}};
  EXPECT_NE(refusal(ErrorCode::kInvalidArgument, "run").find("validation set \"held out\""), std::string::npos);
}

TEST_F(DataTest, ManyEpochsAreSaid) {
  config_.steps = 1000;
  const TrainConfig whole = derive(config_);
  const TrainingData data = open_run_data(config_.data);
  const Mixture mixture = make_mixture(whole, data);
  const std::vector<double> epochs = epochs_of(whole, mixture);
  for (size_t k = 0; k < 3; ++k) {
    const auto rows = static_cast<double>((data.train[k].set->tokens() - 1) / 16);
    EXPECT_NEAR(epochs[k], 4000 * config_.data.sources[k].weight / rows, 1 / rows);
  }
  const std::vector<std::string> said = data_warnings(whole, mixture);
  ASSERT_FALSE(said.empty());
  EXPECT_TRUE(said[0].starts_with(fmt::format("the source \"a\" is read {:.1f} times", epochs[0]))) << said[0];
  config_.steps = 10;
  EXPECT_TRUE(data_warnings(derive(config_), make_mixture(derive(config_), data)).empty());
}

TEST_F(DataTest, TheSameDataTwiceAreSaid) {
  config_.steps = 10;
  std::filesystem::copy(path("a"), path("copy"), std::filesystem::copy_options::recursive);
  const auto said = [&] {
    return data_warnings(derive(config_), make_mixture(derive(config_), open_run_data(config_.data)));
  };
  EXPECT_TRUE(said().empty());
  for (const char* again : {"a", "b/../a/", "copy"}) {
    config_.data.sources[2].path = path(again);
    ASSERT_EQ(said().size(), 1u) << again;
    EXPECT_TRUE(said()[0].starts_with("the sources \"a\" and \"c\" are the same data")) << said()[0];
  }
}

// Documents of 9 tokens in rows of 16 leave 7 of each.
TEST_F(DataTest, MuchPaddingIsSaid) {
  testing::write_set(directory_ / "nines/train", std::vector(50, testing::make_document(9, 1)));
  config_.data.sources.clear();
  config_.data.path = path("nines");
  config_.data.packing = Packing::best_fit;
  config_.steps = 10;
  const TrainConfig whole = derive(config_);
  const Mixture mixture = make_mixture(whole, open_run_data(whole.data));
  EXPECT_DOUBLE_EQ(padding_share(whole, mixture), 7 / 16.0);
  const std::vector<std::string> said = data_warnings(whole, mixture);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(said[0].starts_with("best-fit packing leaves 44 % of the rows empty")) << said[0];
}

// Documents of length T, 1, T + 1 and others in best-fit rows: what is changed in one reaches no other.
TEST_F(DataTest, NothingOfANeighbourReachesAPackedDocument) {
  constexpr int64_t T = 16;
  std::vector<std::vector<int32_t>> documents;
  for (const int64_t length : {T, int64_t{1}, T + 1, T - 1, int64_t{5}, int64_t{1}, int64_t{9}, 2 * T, int64_t{3}}) {
    documents.push_back(testing::make_document(length, documents.size() + 1));
  }
  testing::write_set(directory_ / "edges/train", documents);
  config_.data.sources.clear();
  config_.data.path = path("edges");
  config_.data.packing = Packing::best_fit;
  Trainer trainer = make();
  const Loader& loader = trainer.mixture().loader(0);
  const auto rows = static_cast<size_t>(loader.samples_per_epoch());
  TokenBatch batch;
  loader.fill(0, static_cast<int64_t>(rows), batch);
  const Context ctx(resources_.context);
  const auto logits = [&](const TokenBatch& b) {
    const auto tensor = [&](const std::vector<int32_t>& v) {
      return Tensor::from<int32_t>(*ctx.arena, {b.rows, T}, v);
    };
    FullSequence sequence(tensor(b.positions), tensor(b.first_key));
    const Tensor hidden = trainer.model().transformer->hidden(ctx, tensor(b.tokens), sequence).value;
    const auto values = hidden.span<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> expected = logits(batch);
  const size_t C = expected.size() / (rows * T);
  const auto segment_of = [&](size_t i) { return i / T * T + static_cast<size_t>(batch.first_key[i]); };
  size_t segments = 0;
  for (size_t begin = 0; begin < rows * T; ++begin) {
    if (segment_of(begin) != begin) continue;
    ++segments;
    TokenBatch other = batch;
    other.tokens[begin] = (other.tokens[begin] + 17) % 60;
    const std::vector<float> found = logits(other);
    for (size_t i = 0; i < rows * T; ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i * C), end = static_cast<std::ptrdiff_t>((i + 1) * C);
      const bool equal = std::equal(found.begin() + at, found.begin() + end, expected.begin() + at);
      ASSERT_EQ(equal, segment_of(i) != begin) << "document at " << begin << ", token " << i;
    }
  }
  // 11 pieces of documents, and what padding there is.
  const size_t tokens = static_cast<size_t>(trainer.data().train[0].set->tokens());
  EXPECT_GE(segments, 11u);
  EXPECT_LE(segments, 11 + rows);
  EXPECT_NEAR(loader.padding_share(), 1 - static_cast<double>(tokens) / static_cast<double>(rows * T), 1e-12);
  EXPECT_TRUE(std::isfinite(*trainer.step().loss));
}

}  // namespace
}  // namespace loam
