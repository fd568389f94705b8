#include "loam/infer/sampler.h"

#include <algorithm>
#include <cmath>

#include "loam/base/error.h"
#include "loam/base/philox.h"

namespace loam {

void check_sampling_options(const SamplingOptions& options) {
  LOAM_CHECK(std::isfinite(options.temperature) && options.temperature >= 0,
             "temperature must be a number of at least 0, got {}", options.temperature);
  LOAM_CHECK(options.top_k >= 0, "top_k must be at least 0, got {}", options.top_k);
  LOAM_CHECK(options.top_p > 0 && options.top_p <= 1, "top_p must lie in (0, 1], got {}", options.top_p);
  LOAM_CHECK(options.min_p >= 0 && options.min_p <= 1, "min_p must lie in [0, 1], got {}", options.min_p);
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) { check_sampling_options(options); }

namespace {

bool may_draw(const std::vector<bool>& drawable, size_t id) {
  return drawable.empty() || (id < drawable.size() && drawable[id]);
}

// Index of the largest logit that may be drawn, the lowest one of equals. Error for NaN, +inf or no finite value.
size_t checked_argmax(std::span<const float> logits, const std::vector<bool>& drawable) {
  size_t best = logits.size();
  for (size_t i = 0; i < logits.size(); ++i) {
    LOAM_CHECK(!std::isnan(logits[i]), "sampler: the logit of token {} is NaN", i);
    LOAM_CHECK(!std::isinf(logits[i]) || logits[i] < 0, "sampler: the logit of token {} is infinite", i);
    if (may_draw(drawable, i) && (best == logits.size() || logits[i] > logits[best])) best = i;
  }
  LOAM_CHECK(best < logits.size() && std::isfinite(logits[best]), "sampler: no token has a finite logit");
  return best;
}

double log_sum_exp(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float l : logits) sum += std::exp(l - max);
  return max + std::log(sum);
}

// More likely first; equals in order of id, so that the cut at k or p is the same everywhere.
bool more_likely(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

}  // namespace

Sampled Sampler::sample(std::span<const float> logits, uint64_t stream, uint64_t index,
                        const std::vector<bool>& drawable) {
  const size_t best = checked_argmax(logits, drawable);
  const double max = logits[best];
  const double lse = log_sum_exp(logits);
  const auto result = [&](size_t token) {
    return Sampled{static_cast<int32_t>(token), static_cast<float>(logits[token] - lse)};
  };
  if (options_.temperature == 0) return result(best);

  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i]) && may_draw(drawable, i)) candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
  }
  const bool cut = options_.top_k > 0 && static_cast<size_t>(options_.top_k) < candidates_.size();
  if (cut) {
    std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), more_likely);
    candidates_.resize(static_cast<size_t>(options_.top_k));
  }
  // The order decides which token a random number means, so nth_element must not leave its own.
  if (cut || options_.top_p < 1) std::sort(candidates_.begin(), candidates_.end(), more_likely);

  // Weights relative to the most likely token, at the temperature.
  double total = 0;
  const auto weight = [&](const std::pair<float, int32_t>& c) {
    return std::exp((c.first - max) / options_.temperature);
  };
  for (const auto& c : candidates_) total += weight(c);
  if (options_.top_p < 1) {
    double mass = 0;
    size_t kept = 0;
    while (kept < candidates_.size() && mass < options_.top_p * total) mass += weight(candidates_[kept++]);
    candidates_.resize(kept);
  }
  if (options_.min_p > 0) std::erase_if(candidates_, [&](const auto& c) { return weight(c) < options_.min_p; });

  total = 0;
  for (const auto& c : candidates_) total += weight(c);
  const auto random = PhiloxStream{options_.seed, stream}.block(index);
  const double uniform = (static_cast<double>(random[0]) * 0x1p32 + random[1]) * 0x1p-64;
  double left = uniform * total;
  for (const auto& c : candidates_) {
    left -= weight(c);
    if (left < 0) return result(static_cast<size_t>(c.second));
  }
  return result(static_cast<size_t>(candidates_.back().second));
}

}  // namespace loam
