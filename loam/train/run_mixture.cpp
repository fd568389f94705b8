#include "loam/train/run_mixture.h"

#include <algorithm>
#include <set>

#include "loam/base/error.h"

namespace loam {
namespace {

constexpr int64_t kMaxTargets = int64_t{1} << 60;  // more are none

std::vector<std::string> source_names(const DataConfig& config) {
  if (config.sources.empty()) return {kOnlySource};
  std::vector<std::string> names;
  for (const DataSourceConfig& source : config.sources) names.push_back(source.name);
  return names;
}

std::string text_at(const Json* json) { return json && json->is_string() ? json->as_string() : ""; }

}  // namespace

RunMixture::RunMixture(const TrainingData& data) {
  for (const NamedSet& source : data.train) sources_.push_back({source.name, source.set->fingerprint()});
}

RunMixture::RunMixture(const Json& json, int64_t samples) {
  first_sample_ = json.at("first_sample").as_int();
  int64_t taken = 0;
  std::set<std::string> names;
  for (const Json& one : json.at("sources").as_array()) {
    const RunSource source{one.at("name").as_string(), one.at("fingerprint").as_string(), one.at("taken").as_int(),
                           one.at("targets").as_int()};
    const bool right = source.taken >= 0 && source.taken <= first_sample_ - taken && source.targets >= 0 &&
                       source.targets <= kMaxTargets;
    if (!right || !names.insert(source.name).second)
      fail(ErrorCode::kBadFormat, "mixture: {} is no source of it", one.dump());
    taken += source.taken;
    sources_.push_back(source);
  }
  if (first_sample_ < 0 || first_sample_ > samples || first_sample_ != taken) {
    fail(ErrorCode::kBadFormat, "mixture: begins at sample {} of {}, its sources gave {}", first_sample_, samples,
         taken);
  }
}

RunMixture::RunMixture(const TrainConfig& config, const Json& data, const BatchOrder& order, int64_t samples) {
  const Json* train = data.is_object() ? data.find("train") : nullptr;
  for (const std::string& name : source_names(config.data)) {
    sources_.push_back({name, text_at(train && train->is_object() ? train->find(name) : train)});
  }
  if (samples > kMaxTargets / std::max<int64_t>(config.data.length, 1))
    fail(ErrorCode::kBadFormat, "samples is {}", samples);
  const MixtureOrder mixture(mixture_stages(config), {});
  const auto add = [&](int64_t end, int64_t sign) {
    const std::vector<int64_t> rows = mixture.counts(std::min(end, samples));
    for (size_t k = 0; k < rows.size(); ++k) sources_[k].targets += sign * rows[k] * config.data.length;
  };
  add(samples, 1);
  for (const auto& [begin, end] : order.left_out()) {
    add(end * config.batch, -1);
    add(begin * config.batch, 1);
  }
}

Json RunMixture::to_json() const {
  Json list = Json::array();
  for (const RunSource& source : sources_) {
    list.push_back(Json::Object{{"name", source.name},
                                {"fingerprint", source.fingerprint},
                                {"taken", source.taken},
                                {"targets", source.targets}});
  }
  return Json::Object{{"first_sample", first_sample_}, {"sources", std::move(list)}};
}

int64_t RunMixture::key_of(const std::string& name) const {
  const auto found =
      std::find_if(sources_.begin(), sources_.end(), [&](const RunSource& source) { return source.name == name; });
  return found == sources_.end() ? -1 : found - sources_.begin();
}

std::string RunMixture::other_source(const TrainingData& data) const {
  for (const NamedSet& source : data.train) {
    const int64_t key = key_of(source.name);
    if (key >= 0 && sources_[static_cast<size_t>(key)].fingerprint != source.set->fingerprint()) return source.name;
  }
  return "";
}

void RunMixture::go_on(const TrainConfig& before, int64_t samples, const TrainConfig& config,
                       const TrainingData& data) {
  std::vector<int64_t> keys_before, keys;
  for (const std::string& name : source_names(before.data)) {
    keys_before.push_back(key_of(name));
    if (keys_before.back() < 0) fail(ErrorCode::kBadFormat, "mixture: lacks the source \"{}\"", name);
  }
  std::set<std::string> names;
  for (const NamedSet& source : data.train) names.insert(source.name);
  for (const NamedSet& set : data.train) {
    int64_t key = key_of(set.name);
    if (key < 0) {
      const std::string fingerprint = set.set->fingerprint();
      const auto renamed = std::find_if(sources_.begin(), sources_.end(), [&](const RunSource& source) {
        return source.fingerprint == fingerprint && !names.contains(source.name);
      });
      key = renamed - sources_.begin();
      if (renamed == sources_.end()) sources_.push_back({set.name, fingerprint});
      sources_[static_cast<size_t>(key)].name = set.name;
    }
    keys.push_back(key);
  }
  const std::vector<MixtureStage> stages_before = mixture_stages(before);
  if (keys == keys_before && mixture_stages(config) == stages_before) return;
  const std::vector<int64_t> taken = MixtureOrder(stages_before, start_of(keys_before)).counts(samples);
  for (size_t k = 0; k < taken.size(); ++k) sources_[static_cast<size_t>(keys_before[k])].taken = taken[k];
  first_sample_ = samples;
}

void RunMixture::take_targets(const RunMixture& earlier) {
  for (RunSource& source : sources_) {
    const int64_t key = earlier.key_of(source.name);
    source.targets = key < 0 ? 0 : earlier.sources_[static_cast<size_t>(key)].targets;
  }
}

MixtureStart RunMixture::start_of(const std::vector<int64_t>& keys) const {
  MixtureStart start{first_sample_, {}, keys};
  for (const int64_t key : keys) start.taken.push_back(sources_[static_cast<size_t>(key)].taken);
  return start;
}

MixtureStart RunMixture::start(const TrainConfig& config, const TrainingData& data) const {
  std::vector<int64_t> keys;
  for (const NamedSet& source : data.train) keys.push_back(key_of(source.name));
  return config.overfit_one_batch ? MixtureStart{0, {}, keys} : start_of(keys);
}

void RunMixture::add_targets(const std::string& name, int64_t targets) {
  sources_[static_cast<size_t>(key_of(name))].targets += targets;
}

}  // namespace loam
