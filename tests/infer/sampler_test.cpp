#include "loam/infer/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "loam/base/error.h"
#include "loam/base/philox.h"
#include "tests/harness/expect_error.h"

namespace loam {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  double max = -INFINITY, sum = 0;
  for (float l : logits) max = std::max(max, double{l});
  std::vector<double> p;
  for (float l : logits) p.push_back(std::exp((l - max) / temperature)), sum += p.back();
  for (double& x : p) x /= sum;
  return p;
}

std::vector<double> frequencies(const std::vector<float>& logits, const SamplingOptions& options, int draws) {
  Sampler sampler(options);
  std::vector<double> share(logits.size(), 0.0);
  for (int i = 0; i < draws; ++i)
    share[static_cast<size_t>(sampler.sample(logits, 7, static_cast<uint64_t>(i)).token)] += 1.0 / draws;
  return share;
}

// Five standard deviations of a share estimated from `draws`.
double tolerance(double p, int draws) { return 5 * std::sqrt(p * (1 - p) / draws) + 1e-12; }

const std::vector<float> kLogits = {1.0f, -0.5f, 2.0f, 0.25f, -kInf, 1.5f};

TEST(Sampler, SharesFollowTheSoftmaxAtTheTemperature) {
  constexpr int kDraws = 40000;
  for (double temperature : {0.5, 1.0, 2.0}) {
    const auto expected = softmax(kLogits, temperature);
    const auto share = frequencies(kLogits, {.temperature = temperature, .seed = 3}, kDraws);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(share[i], expected[i], tolerance(expected[i], kDraws)) << i << " at " << temperature;
  }
}

TEST(Sampler, CutsKeepTheSetThatTheDefinitionKeeps) {
  // Probabilities at temperature 1, in order: 2.0 -> 0.432, 1.5 -> 0.262, 1.0 -> 0.159, 0.25 -> 0.075, -0.5 -> 0.035.
  constexpr int kDraws = 20000;
  const auto p = softmax(kLogits, 1);
  const auto check = [&](const SamplingOptions& options, std::vector<size_t> kept) {
    double mass = 0;
    for (size_t i : kept) mass += p[i];
    const auto share = frequencies(kLogits, options, kDraws);
    for (size_t i = 0; i < p.size(); ++i) {
      const bool in = std::find(kept.begin(), kept.end(), i) != kept.end();
      EXPECT_NEAR(share[i], in ? p[i] / mass : 0.0, in ? tolerance(p[i] / mass, kDraws) : 0.0) << i;
    }
  };
  check({.top_k = 2}, {2, 5});
  check({.top_k = 100}, {0, 1, 2, 3, 5});
  check({.top_p = 0.43}, {2});
  check({.top_p = 0.45}, {2, 5});
  check({.top_p = 0.80}, {0, 2, 5});
  check({.min_p = 0.5}, {2, 5});           // at least half of 0.432
  check({.top_k = 3, .top_p = 0.5}, {2});  // 0.506 of the three that are left
}

TEST(Sampler, IdsThatMayNotBeDrawnCountForTheLogProb) {
  const auto p = softmax(kLogits, 1);
  const std::vector<bool> drawable = {true, true, false, true, true};  // not the most likely one, nor the last
  std::vector<int> seen(kLogits.size(), 0);
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    for (uint64_t i = 0; i < 200; ++i) {
      const Sampled s = sampler.sample(kLogits, 0, i, drawable);
      ++seen[static_cast<size_t>(s.token)];
      EXPECT_NEAR(s.logp, std::log(p[static_cast<size_t>(s.token)]), 1e-6);
    }
  }
  EXPECT_EQ(seen[2] + seen[4] + seen[5], 0);
  EXPECT_GT(seen[0], 200);  // all greedy draws, and some of the others
  EXPECT_THROW(Sampler({}).sample(kLogits, 0, 0, {false, false}), Error);
}

// The kept tokens share [0, 1) in the order of their likelihood, whatever order the selection leaves them in.
TEST(Sampler, TheKeptOnesStandInOrder) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1000) * 0.01f;
  constexpr size_t kKept = 40;
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  double total = 0;
  for (size_t i = 0; i < kKept; ++i) total += std::exp(double{logits[order[i]]});
  Sampler sampler({.top_k = kKept, .seed = 9});
  for (uint64_t draw = 0; draw < 500; ++draw) {
    const auto random = PhiloxStream{9, 3}.block(draw);
    double left = (random[0] * 0x1p32 + random[1]) * 0x1p-64 * total;
    size_t at = 0;
    while (at + 1 < kKept && (left -= std::exp(double{logits[order[at]]})) >= 0) ++at;
    EXPECT_EQ(sampler.sample(logits, 3, draw).token, static_cast<int32_t>(order[at])) << draw;
  }
}

TEST(Sampler, GreedyTakesTheLowestOfEqualsAndReportsTheModelsLogProb) {
  Sampler sampler({.temperature = 0});
  const std::vector<float> logits = {0.0f, 3.0f, 3.0f, -1.0f};
  const Sampled s = sampler.sample(logits, 0, 0);
  EXPECT_EQ(s.token, 1);
  EXPECT_NEAR(s.logp, std::log(softmax(logits, 1)[1]), 1e-6);
  EXPECT_NEAR(Sampler({.temperature = 0.3, .top_k = 1}).sample(logits, 0, 0).logp, std::log(softmax(logits, 1)[1]),
              1e-6);
}

TEST(Sampler, TinyTemperatureIsGreedyAndStreamsAreIndependent) {
  Sampler cold({.temperature = 1e-4});
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(cold.sample(kLogits, 0, i).token, 2);
  Sampler a({.seed = 1}), b({.seed = 1});
  int differ = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(a.sample(kLogits, 4, i).token, b.sample(kLogits, 4, i).token);
    differ += a.sample(kLogits, 4, i).token != a.sample(kLogits, 5, i).token;
  }
  EXPECT_GT(differ, 50);
}

TEST(Sampler, BadSettingsAndLogitsAreErrors) {
  for (const SamplingOptions& bad :
       {SamplingOptions{.temperature = -1}, SamplingOptions{.temperature = NAN}, SamplingOptions{.top_k = -1},
        SamplingOptions{.top_p = 0}, SamplingOptions{.top_p = 1.5}, SamplingOptions{.top_p = NAN},
        SamplingOptions{.min_p = -0.1}}) {
    EXPECT_THROW(Sampler{bad}, Error);
  }
  Sampler sampler({});
  EXPECT_THROW(sampler.sample(std::vector<float>{0.0f, NAN}, 0, 0), Error);
  EXPECT_LOAM_ERROR(sampler.sample(std::vector<float>{0.0f, kInf}, 0, 0), ErrorCode::kInvalidArgument,
                    "the logit of token 1 is infinite");
  EXPECT_THROW(sampler.sample(std::vector<float>{-kInf, -kInf}, 0, 0), Error);
  EXPECT_THROW(sampler.sample(std::vector<float>{}, 0, 0), Error);
}

}  // namespace
}  // namespace loam
