#include "loam/train/run_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "loam/base/error.h"
#include "loam/data/token_set_check.h"

namespace loam {
namespace {

constexpr int64_t kVerifiedTokens = int64_t{1} << 28;  // larger sets are checked as they are read
constexpr double kManyEpochs = 4;
constexpr double kMuchPadding = 0.1;
constexpr const char *kTraining = "training", *kValidation = "validation";

std::shared_ptr<const TokenSet> open_set(const Path& directory) {
  auto set = std::make_shared<TokenSet>(directory);
  if (set->tokens() <= kVerifiedTokens) set->verify();
  return set;
}

// A directory with train/ and perhaps val/, both checked against what lies beside them.
void open_directory(const Path& path, const std::string& train_name, const std::string& val_name, TrainingData& data) {
  if (!std::filesystem::exists(path / "train")) {
    fail(ErrorCode::kNotFound, "{}: there is no train/ in it; `loam data tokenize` makes such a directory",
         path.string());
  }
  data.train.push_back({train_name, open_set(path / "train")});
  const TokenSet& train = *data.train.back().set;
  const TokenSet* val = nullptr;
  if (std::filesystem::exists(path / "val")) {
    data.val.push_back({val_name, open_set(path / "val")});
    val = data.val.back().set.get();
  }
  check_token_sets(path, train, val, std::max(train.tokens(), val ? val->tokens() : 0) <= kVerifiedTokens);
}

void check_same_vocabulary(const NamedSet& first, const char* kind, const NamedSet& other) {
  const TokenSetInfo &a = first.set->info(), &b = other.set->info();
  if (a.tokenizer_fingerprint == b.tokenizer_fingerprint && a.vocab_size == b.vocab_size &&
      a.end_of_text == b.end_of_text) {
    return;
  }
  const auto shown = [](const TokenSetInfo& info) {
    return fmt::format("{} ids, end of text {}, tokenizer {}", info.vocab_size, info.end_of_text,
                       info.tokenizer_fingerprint.empty() ? "unknown" : info.tokenizer_fingerprint);
  };
  fail(ErrorCode::kInvalidArgument, "the {} \"{}\" and the data source \"{}\" have different tokenizers: {}; {}", kind,
       other.name, first.name, shown(b), shown(a));
}

bool is_plain(const std::vector<NamedSet>& sets) { return sets.size() == 1 && sets[0].name == kOnlySet; }

}  // namespace

TrainingData one_source(std::shared_ptr<const TokenSet> train, std::shared_ptr<const TokenSet> val) {
  TrainingData data;
  data.train.push_back({kOnlySource, std::move(train)});
  if (val) data.val.push_back({kOnlySet, std::move(val)});
  return data;
}

TrainingData open_run_data(const DataConfig& config) {
  LOAM_CHECK(!first_data_path(config).empty(), "data.path is not set: a directory made by `loam data tokenize`");
  TrainingData data;
  if (!config.path.empty()) open_directory(config.path, kOnlySource, kOnlySet, data);
  for (const DataSourceConfig& source : config.sources) open_directory(source.path, source.name, source.name, data);
  if (!config.validation.empty()) data.val.clear();
  for (const ValidationSetConfig& set : config.validation) {
    const Path path = set.path;
    const bool is_set = std::filesystem::exists(path / "index.json");
    if (!is_set && !std::filesystem::exists(path / "val")) {
      fail(ErrorCode::kNotFound, "{}: neither a token set nor a directory with val/ (data.validation \"{}\")",
           path.string(), set.name);
    }
    data.val.push_back({set.name, open_set(is_set ? path : path / "val")});
  }
  for (const NamedSet& source : data.train) check_same_vocabulary(data.train[0], "data source", source);
  for (const NamedSet& set : data.val) check_same_vocabulary(data.train[0], "validation set", set);
  return data;
}

LoaderOptions loader_options(const TrainConfig& config) {
  return {config.data.length, config.data.mask_documents, config.data.shuffle, static_cast<uint64_t>(config.seed),
          config.data.packing == Packing::best_fit};
}

std::vector<MixtureStage> mixture_stages(const TrainConfig& config) {
  std::vector<MixtureStage> stages;
  for (const DataStageConfig& stage : config.data.stages) {
    const auto step = std::llround(stage.begin * static_cast<double>(config.steps));
    stages.push_back({step * config.batch, stage.weights});
  }
  if (stages.empty()) {
    stages.emplace_back();
    for (const DataSourceConfig& source : config.data.sources) stages[0].weights.push_back(source.weight);
    if (config.data.sources.empty()) stages[0].weights = {1};
  }
  return stages;
}

Mixture make_mixture(const TrainConfig& config, const TrainingData& data, const MixtureStart& start) {
  return Mixture(data.train, mixture_stages(config), loader_options(config), start);
}

void check_run_data(const TrainConfig& config, const TrainingData& data) {
  const auto check = [&](const NamedSet& set, const char* name) {
    LOAM_CHECK(set.set->info().vocab_size <= config.model.vocab_size,
               "the {} data have token ids up to {}, but model.vocab_size is {}", name, set.set->info().vocab_size - 1,
               config.model.vocab_size);
    if (name == kTraining) Loader::check(*set.set, loader_options(config));
  };
  const auto check_named = [&](const NamedSet& set, const char* name, const char* what) {
    try {
      check(set, name);
    } catch (const Error& error) {
      fail(error.code(), "{} \"{}\": {}", what, set.name, error.what());
    }
  };
  for (const NamedSet& source : data.train) {
    data.train.size() == 1 ? check(source, kTraining) : check_named(source, kTraining, "data source");
  }
  for (const NamedSet& set : data.val) {
    is_plain(data.val) ? check(set, kValidation) : check_named(set, kValidation, "validation set");
  }
}

Json fingerprints_of(const TrainingData& data) {
  const auto by_name = [](const std::vector<NamedSet>& sets, bool plain) -> Json {
    if (sets.empty()) return {};
    if (plain) return sets[0].set->fingerprint();
    Json names = Json::object();
    for (const NamedSet& set : sets) names[set.name] = set.set->fingerprint();
    return names;
  };
  Json json = Json::object();
  json["train"] = by_name(data.train, data.train.size() == 1);
  json["val"] = by_name(data.val, is_plain(data.val));
  json["tokenizer"] = data.train[0].set->info().tokenizer_fingerprint;
  return json;
}

namespace {

std::vector<int64_t> rows_of_run(const TrainConfig& config, const Mixture& mixture) {
  return mixture.counts(std::max(config.steps * config.batch, mixture.first_sample()));
}

}  // namespace

std::vector<double> epochs_of(const TrainConfig& config, const Mixture& mixture) {
  const std::vector<int64_t> rows = rows_of_run(config, mixture);
  std::vector<double> epochs;
  for (int64_t k = 0; k < mixture.size(); ++k) {
    epochs.push_back(static_cast<double>(rows[static_cast<size_t>(k)]) /
                     static_cast<double>(mixture.loader(k).samples_per_epoch()));
  }
  return epochs;
}

double padding_share(const TrainConfig& config, const Mixture& mixture) {
  const std::vector<int64_t> rows = rows_of_run(config, mixture);
  double padding = 0;
  for (int64_t k = 0; k < mixture.size(); ++k) {
    padding += static_cast<double>(rows[static_cast<size_t>(k)]) * mixture.loader(k).padding_share();
  }
  return padding / static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
}

std::vector<std::string> data_warnings(const TrainConfig& config, const Mixture& mixture) {
  std::vector<std::string> warnings;
  if (config.overfit_one_batch) return warnings;
  if (const double padding = padding_share(config, mixture); padding > kMuchPadding) {
    warnings.push_back(
        fmt::format("best-fit packing leaves {:.0f} % of the rows empty: longer rows (data.length) leave "
                    "less, and packing \"stream\" nothing",
                    100 * padding));
  }
  std::map<std::string, int64_t> sources;  // by what they hold
  for (int64_t k = 0; k < mixture.size(); ++k) {
    const auto [same, is_new] = sources.emplace(mixture.loader(k).set().fingerprint(), k);
    if (is_new) continue;
    warnings.push_back(
        fmt::format("the sources \"{}\" and \"{}\" are the same data, which are read as often as both say",
                    mixture.name(same->second), mixture.name(k)));
  }
  const std::vector<double> epochs = epochs_of(config, mixture);
  for (int64_t k = 0; k < mixture.size(); ++k) {
    const double times = epochs[static_cast<size_t>(k)];
    if (times <= kManyEpochs) continue;
    const std::string what =
        mixture.size() == 1 ? "the data are" : fmt::format("the source \"{}\" is", mixture.name(k));
    warnings.push_back(fmt::format("{} read {:.1f} times: beyond {} times, repeated data are worth ever less", what,
                                   times, kManyEpochs));
  }
  return warnings;
}

}  // namespace loam
