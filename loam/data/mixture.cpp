// Legend: P turns a period.
#include "loam/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>

#include "loam/base/error.h"

namespace loam {
namespace {

constexpr int64_t kMaxPeriod = 1 << 20;
constexpr uint64_t kNextKey = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio: keys lie far apart

// Whole numbers in the proportions of the weights, if there are some with a sum of at most kMaxPeriod.
std::vector<int64_t> exact_shares(const std::vector<double>& weights) {
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    std::vector<int64_t> shares;
    int64_t divisor = 0;
    for (const double weight : weights) {
      const double scaled = weight * scale, whole = std::round(scaled);
      // Times a power of ten a decimal is whole but for the rounding of the two.
      if (whole > 1e15 || std::abs(scaled - whole) > 4 * std::numeric_limits<double>::epsilon() * scaled) break;
      shares.push_back(static_cast<int64_t>(whole));
      divisor = std::gcd(divisor, shares.back());
    }
    if (shares.size() < weights.size()) continue;
    double sum = 0;
    for (int64_t& share : shares) sum += static_cast<double>(share /= divisor);
    if (sum <= static_cast<double>(kMaxPeriod)) return shares;
  }
  return {};
}

// The nearest ones with the sum kMaxPeriod: the largest remainders are rounded up.
std::vector<int64_t> nearest_shares(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = kMaxPeriod;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double ideal = weights[i] / sum * static_cast<double>(kMaxPeriod);
    shares.push_back(weights[i] > 0 ? std::max<int64_t>(1, static_cast<int64_t>(ideal)) : 0);
    left -= shares.back();
    if (weights[i] > 0) remainders.emplace_back(static_cast<double>(shares.back()) - ideal, i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; left > 0; --left) ++shares[remainders[i++ % remainders.size()].second];
  // What the least shares were given is taken from the largest one.
  if (left < 0) *std::max_element(shares.begin(), shares.end()) += left;
  return shares;
}

}  // namespace

Interleaving::Interleaving(const std::vector<double>& weights) {
  constexpr size_t kMaxSources = 1024;  // so that the largest share can give all that the least ones need
  LOAM_CHECK(!weights.empty() && weights.size() <= kMaxSources, "mixture: {} sources", weights.size());
  double sum = 0;
  for (const double weight : weights) {
    LOAM_CHECK(weight >= 0, "mixture: a weight of {}", weight);
    sum += weight;
  }
  LOAM_CHECK(sum > 0 && std::isfinite(sum), "mixture: weights with a sum of {}", sum);
  share_ = exact_shares(weights);
  if (share_.empty()) share_ = nearest_shares(weights);
  const int64_t P = std::accumulate(share_.begin(), share_.end(), int64_t{0});

  struct Event {
    int64_t time;
    size_t source;
    bool operator>(const Event& other) const { return std::tie(time, source) > std::tie(other.time, other.source); }
  };
  using Queue = std::priority_queue<Event, std::vector<Event>, std::greater<>>;
  Queue waiting, ready;  // by the first and by the last turn of all at which their next one may be
  std::vector<int64_t> taken(share_.size());
  for (size_t k = 0; k < share_.size(); ++k) {
    if (share_[k] > 0) waiting.push({0, k});
  }
  for (int64_t t = 0; t < P; ++t) {
    for (; !waiting.empty() && waiting.top().time <= t; waiting.pop()) {
      const size_t k = waiting.top().source;
      ready.push({((taken[k] + 1) * P + share_[k] - 1) / share_[k] - 1, k});
    }
    if (ready.empty() || ready.top().time < t)
      fail(ErrorCode::kInternal, "mixture: turn {} of {} cannot be given", t, P);
    const size_t k = ready.top().source;
    ready.pop();
    source_.push_back(static_cast<uint16_t>(k));
    index_.push_back(static_cast<uint32_t>(taken[k]++));
    if (taken[k] < share_[k]) waiting.push({taken[k] * P / share_[k], k});
  }
}

Interleaving::Turn Interleaving::turn(int64_t position) const {
  const auto at = static_cast<size_t>(position % period());
  const int64_t source = source_[at];
  return {source, position / period() * share_[static_cast<size_t>(source)] + index_[at]};
}

std::vector<int64_t> Interleaving::counts(int64_t turns) const {
  std::vector<int64_t> counts;
  for (const int64_t share : share_) counts.push_back(turns / period() * share);
  for (int64_t at = 0; at < turns % period(); ++at) ++counts[source_[static_cast<size_t>(at)]];
  return counts;
}

MixtureOrder::MixtureOrder(const std::vector<MixtureStage>& stages, const MixtureStart& start)
    : first_sample_(start.first_sample) {
  LOAM_CHECK(!stages.empty(), "mixture: 0 stages");
  const size_t sources = stages[0].weights.size();
  std::vector<int64_t> earlier = start.taken;
  if (earlier.empty()) earlier.resize(sources);
  LOAM_CHECK(first_sample_ >= 0 && earlier.size() == sources, "mixture: begins at sample {} of {} sources",
             first_sample_, earlier.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    const MixtureStage& stage = stages[i];
    LOAM_CHECK(stage.weights.size() == sources, "mixture: {} weights for {} sources", stage.weights.size(), sources);
    LOAM_CHECK(i == 0 ? stage.begin == 0 : stage.begin >= stages[i - 1].begin, "mixture: a stage begins at sample {}",
               stage.begin);
    const int64_t begin = std::max(stage.begin, first_sample_);
    if (i + 1 < stages.size() && stages[i + 1].begin <= begin) continue;
    if (!stages_.empty()) earlier = counts(begin);
    stages_.push_back({begin, Interleaving(stage.weights), earlier});
  }
}

const MixtureOrder::Stage& MixtureOrder::stage_of(int64_t sample) const {
  LOAM_CHECK(sample >= first_sample_, "mixture: sample {}, of an order that begins at {}", sample, first_sample_);
  const auto after = std::upper_bound(stages_.begin(), stages_.end(), sample,
                                      [](int64_t s, const Stage& stage) { return s < stage.begin; });
  return *(after - 1);
}

MixtureOrder::Place MixtureOrder::place(int64_t sample) const {
  const Stage& stage = stage_of(sample);
  const Interleaving::Turn turn = stage.order.turn(sample - stage.begin);
  return {turn.source, stage.earlier[static_cast<size_t>(turn.source)] + turn.index};
}

std::vector<int64_t> MixtureOrder::counts(int64_t samples) const {
  const Stage& stage = stage_of(samples);
  std::vector<int64_t> counts = stage.order.counts(samples - stage.begin);
  for (size_t k = 0; k < counts.size(); ++k) counts[k] += stage.earlier[k];
  return counts;
}

Mixture::Mixture(const std::vector<NamedSet>& sources, const std::vector<MixtureStage>& stages, LoaderOptions options,
                 const MixtureStart& start)
    : options_(options) {
  for (const NamedSet& source : sources) {
    try {
      loaders_.emplace_back(source.set, options);
    } catch (const Error& error) {
      if (sources.size() == 1) throw;
      fail(error.code(), "data source \"{}\": {}", source.name, error.what());
    }
    names_.push_back(source.name);
  }
  begin(stages, start);
}

void Mixture::begin(const std::vector<MixtureStage>& stages, const MixtureStart& start) {
  MixtureOrder order(stages, start);
  LOAM_CHECK(stages[0].weights.size() == loaders_.size(), "mixture: {} weights for {} sources",
             stages[0].weights.size(), loaders_.size());
  LOAM_CHECK(start.keys.empty() || start.keys.size() == loaders_.size(), "mixture: {} keys for {} sources",
             start.keys.size(), loaders_.size());
  order_ = std::move(order);
  for (size_t k = 0; k < loaders_.size(); ++k) {
    const uint64_t key = start.keys.empty() ? k : static_cast<uint64_t>(start.keys[k]);
    loaders_[k].set_seed(options_.seed + key * kNextKey);
  }
}

void Mixture::fill(int64_t first_sample, int64_t rows, TokenBatch& batch) const {
  LOAM_CHECK(first_sample >= 0 && rows >= 0, "loader: {} rows from sample {}", rows, first_sample);
  batch.resize(rows, options_.length);
  for (int64_t row = 0; row < rows; ++row) {
    const Place at = place(first_sample + row);
    loader(at.source).fill_row(at.index, batch.row(row));
  }
}

}  // namespace loam
