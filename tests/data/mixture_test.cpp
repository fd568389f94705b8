#include "loam/data/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/base/philox.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;
using Ids = std::vector<int32_t>;

// After every number of turns each source has had what its weight says, within one turn, or as many more as weights
// that are off by `error` make; and its turns are counted.
void expect_exact(const std::vector<double>& weights, int64_t turns, double error = 1e-12) {
  const Interleaving order(weights);
  double sum = 0;
  for (const double weight : weights) sum += weight;
  std::vector<int64_t> taken(weights.size());
  for (int64_t n = 0; n < turns; ++n) {
    const Interleaving::Turn turn = order.turn(n);
    ASSERT_EQ(turn.index, taken[static_cast<size_t>(turn.source)]);
    ++taken[static_cast<size_t>(turn.source)];
    for (size_t k = 0; k < weights.size(); ++k) {
      const double ideal = static_cast<double>(n + 1) * weights[k] / sum;
      ASSERT_LT(std::abs(static_cast<double>(taken[k]) - ideal), 1 + error * static_cast<double>(n + 1))
          << "source " << k << " after " << n + 1;
    }
    if (n % 997 == 0 && n < 5000) {
      ASSERT_EQ(order.counts(n + 1), taken);
    }
  }
}

TEST(Interleaving, EverySourceHasItsShareAfterEveryTurn) {
  expect_exact({1}, 10);
  expect_exact({1, 1}, 100);
  expect_exact({0.7, 0.3}, 1000);
  expect_exact({3, 0, 1}, 1000);
  expect_exact({0.9, 0.025, 0.025, 0.025, 0.025}, 2000);
  expect_exact({0.5, 0.3, 0.1, 0.05, 0.05}, 2000);
  expect_exact({0.333333, 0.333333, 0.333334}, 3000);
  expect_exact({1e-6, 0.999999}, 2'100'000);
  expect_exact({1.0 / 3, 2.0 / 3, M_PI, M_E}, 100'000, 0x1p-20);  // no common denominator
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const PhiloxStream random{seed, 1};
    std::vector<double> weights;
    for (uint64_t k = 0; k < 2 + seed % 12; ++k) {
      weights.push_back(1 + static_cast<double>(random.below(k, seed % 3 == 0 ? 5 : 200)));
    }
    expect_exact(weights, 3000);
  }
}

TEST(Interleaving, PeriodsAreThoseOfTheFractions) {
  EXPECT_EQ(Interleaving({0.7, 0.3}).period(), 10);
  EXPECT_EQ(Interleaving({70, 30}).period(), 10);
  EXPECT_EQ(Interleaving({0.125, 0.875, 0}).period(), 8);
  EXPECT_EQ(Interleaving({0.1, 0.2, 0.3}).period(), 6);
  EXPECT_EQ(Interleaving({M_PI, M_E}).period(), 1 << 20);
  // No source is starved, however small its weight.
  EXPECT_EQ(Interleaving({1e-12, 1, 1e12}).counts(1 << 20), (std::vector<int64_t>{1, 1, (1 << 20) - 2}));
  std::vector<double> many(1024, 1e-12);
  many[7] = 1;
  EXPECT_EQ(Interleaving(many).counts(1 << 20)[7], (1 << 20) - 1023);
  EXPECT_EQ(Interleaving({0, 5}).turn(int64_t{1} << 60).index, int64_t{1} << 60);
}

TEST(Interleaving, WeightsThatAreNoneAreRefused) {
  EXPECT_LOAM_ERROR(Interleaving({}), ErrorCode::kInvalidArgument, "0 sources");
  EXPECT_LOAM_ERROR(Interleaving(std::vector<double>(1025, 1)), ErrorCode::kInvalidArgument, "1025 sources");
  EXPECT_LOAM_ERROR(Interleaving({0, 0}), ErrorCode::kInvalidArgument, "sum of 0");
  EXPECT_LOAM_ERROR(Interleaving({1, -1}), ErrorCode::kInvalidArgument, "a weight of -1");
  EXPECT_LOAM_ERROR(Interleaving({1, std::nan("")}), ErrorCode::kInvalidArgument, "weight of nan");
  EXPECT_LOAM_ERROR(Interleaving({1, HUGE_VAL}), ErrorCode::kInvalidArgument, "sum of inf");
}

// Sources of 5, 9 and 30 windows whose tokens tell them apart: token p of source k is 1000 k + p.
class MixtureTest : public ::testing::Test {
 protected:
  static constexpr int64_t kLength = 8;
  MixtureTest() {
    int32_t next = 0;
    for (const int64_t windows : {5, 9, 30}) {
      const std::string name = fmt::format("s{}", sources_.size());
      TokenSetWriter writer(directory_ / name, {"", 10'000, -1, 0, 0, 0});
      Ids document(static_cast<size_t>(windows * kLength + 1));
      for (size_t i = 0; i < document.size(); ++i) document[i] = next + static_cast<int32_t>(i);
      writer.add(document, 1);
      writer.finish();
      sources_.push_back({name, std::make_shared<const TokenSet>(directory_ / name)});
      next += 1000;
    }
  }
  Mixture make(const std::vector<MixtureStage>& stages) const { return Mixture(sources_, stages, options_); }

  TempDir directory_;
  std::vector<NamedSet> sources_;
  LoaderOptions options_{.length = kLength, .mask_documents = true, .shuffle = true, .seed = 11};
  const std::vector<MixtureStage> stages_{{0, {1, 0, 3}}, {100, {2, 3, 5}}, {100, {1, 1, 1}}, {250, {0, 1, 0}}};
};

// The order is a promise: a run goes on with a later release. tests/fixtures/make_order_fixture.py has its own
// implementation.
TEST_F(MixtureTest, TheOrderIsFrozen) {
  const std::string path = testing::source_path("tests/fixtures/order.json");
  const Json all = Json::parse(read_file(path), path);
  for (const Json& one : all.at("permutations").as_array()) {
    const auto number = [&](const char* name) { return static_cast<uint64_t>(one.at(name).as_int()); };
    uint64_t index = 0;
    for (const Json& image : one.at("images").as_array()) {
      EXPECT_EQ(permute_index(index++, number("n"), number("seed"), number("epoch")),
                static_cast<uint64_t>(image.as_int()));
    }
    EXPECT_EQ(index, number("n"));
  }
  const auto weights_of = [](const Json& one) {
    std::vector<double> weights;
    for (const Json& weight : one.at("weights").as_array()) weights.push_back(weight.as_double());
    return weights;
  };
  for (const Json& one : all.at("turns").as_array()) {
    const Interleaving order(weights_of(one));
    const Json::Array& sources = one.at("sources").as_array();
    ASSERT_EQ(order.period(), static_cast<int64_t>(sources.size()));
    for (size_t t = 0; t < sources.size(); ++t) {
      EXPECT_EQ(order.turn(static_cast<int64_t>(t)).source, sources[t].as_int());
    }
  }
  const Json& mixed = all.at("mixture");
  options_.seed = static_cast<uint64_t>(mixed.at("seed").as_int());
  const Mixture mixture({sources_[0], sources_[1]}, {{0, weights_of(mixed)}}, options_);
  const Json::Array& places = mixed.at("places").as_array();
  TokenBatch batch;
  mixture.fill(0, static_cast<int64_t>(places.size()), batch);
  for (size_t s = 0; s < places.size(); ++s) {
    const int64_t source = places[s].as_array()[0].as_int(), window = places[s].as_array()[1].as_int();
    EXPECT_EQ(batch.tokens[s * kLength], 1000 * source + kLength * window) << s;
  }
}

TEST_F(MixtureTest, OneSourceIsALoader) {
  const Loader loader(sources_[2].set, options_);
  const Mixture mixture({sources_[2]}, {{0, {0.3}}}, options_);
  TokenBatch expected, found;
  loader.fill(7, 200, expected);
  mixture.fill(7, 200, found);
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.targets, expected.targets);
  EXPECT_EQ(found.first_key, expected.first_key);
  EXPECT_EQ(found.positions, expected.positions);
}

// Whatever the others do, every source gives each of its windows once an epoch, and goes on through the stages.
TEST_F(MixtureTest, EverySourceGoesThroughItsOwnEpochs) {
  const Mixture mixture = make(stages_);
  constexpr int64_t kSamples = 400;
  TokenBatch batch;
  mixture.fill(0, kSamples, batch);
  std::vector<std::vector<int32_t>> windows(3);
  const std::vector<std::vector<double>> weights{{1, 0, 3}, {1, 1, 1}, {0, 1, 0}};
  const std::vector<int64_t> begins{0, 100, 250, kSamples};
  for (size_t stage = 0; stage < 3; ++stage) {
    std::vector<int64_t> taken(3);
    double sum = 0;
    for (const double w : weights[stage]) sum += w;
    for (int64_t s = begins[stage]; s < begins[stage + 1]; ++s) {
      const int32_t token = batch.tokens[static_cast<size_t>(s * kLength)];
      const auto source = static_cast<size_t>(token / 1000);
      EXPECT_EQ(mixture.place(s).source, static_cast<int64_t>(source));
      EXPECT_EQ(mixture.place(s).index, static_cast<int64_t>(windows[source].size()));
      windows[source].push_back(token % 1000 / static_cast<int32_t>(kLength));
      ++taken[source];
      for (size_t k = 0; k < 3; ++k) {
        const double ideal = static_cast<double>(s + 1 - begins[stage]) * weights[stage][k] / sum;
        ASSERT_LT(std::abs(static_cast<double>(taken[k]) - ideal), 1) << s;
      }
    }
  }
  const std::vector<size_t> sizes{5, 9, 30};
  for (size_t k = 0; k < 3; ++k) {
    ASSERT_GT(windows[k].size(), 2 * sizes[k]);
    std::set<std::vector<int32_t>> orders;
    for (size_t epoch = 0; (epoch + 1) * sizes[k] <= windows[k].size(); ++epoch) {
      const auto begin = windows[k].begin() + static_cast<std::ptrdiff_t>(epoch * sizes[k]);
      std::vector<int32_t> order(begin, begin + static_cast<std::ptrdiff_t>(sizes[k]));
      orders.insert(order);
      std::sort(order.begin(), order.end());
      for (size_t i = 0; i < sizes[k]; ++i) ASSERT_EQ(order[i], static_cast<int32_t>(i)) << k << " " << epoch;
    }
    EXPECT_GT(orders.size(), 1u);
    EXPECT_EQ(mixture.counts(kSamples)[k], static_cast<int64_t>(windows[k].size()));
  }
}

// Micro-batches, ranks that take turns, and processes that go on: any cut of the samples is the same.
TEST_F(MixtureTest, AnyCutOfTheSamplesIsTheSame) {
  for (const bool best_fit : {false, true}) {
    options_.best_fit = best_fit;
    TokenBatch all, part;
    make(stages_).fill(0, 300, all);
    for (const int64_t step : {1, 3, 64}) {
      Ids tokens, targets;
      for (int64_t s = 0; s < 300; s += step) {
        make(stages_).fill(s, std::min(step, 300 - s), part);
        tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
        targets.insert(targets.end(), part.targets.begin(), part.targets.end());
      }
      EXPECT_EQ(tokens, all.tokens);
      EXPECT_EQ(targets, all.targets);
    }
  }
}

// Equal sets are not read in step.
TEST_F(MixtureTest, SourcesHaveKeysOfTheirOwn) {
  const Mixture mixture({sources_[2], sources_[2]}, {{0, {1, 1}}}, options_);
  TokenBatch batch;
  mixture.fill(0, 60, batch);
  int same = 0;
  for (size_t s = 0; s < 60; s += 2) same += batch.tokens[s * kLength] == batch.tokens[(s + 1) * kLength];
  EXPECT_LT(same, 8);  // one is expected
}

// From sample 170 on, in the third stage: turns begin anew there, and the fourth one comes where it would.
TEST_F(MixtureTest, AMixtureMayTakeOverFromAnother) {
  const MixtureStart start{170, {7, 90, 73}, {4, 0, 2}};
  const Mixture mixture(sources_, stages_, options_, start);
  std::vector<int64_t> taken = start.taken;
  TokenBatch batch;
  for (int64_t s = 170; s < 300; ++s) {
    const Mixture::Place at = mixture.place(s);
    const auto source = static_cast<size_t>(at.source);
    EXPECT_EQ(mixture.counts(s), taken);
    EXPECT_EQ(at.index, taken[source]++);
    if (s >= 250) {
      EXPECT_EQ(source, 1u);
    }
    if (s < 250 && (s - 169) % 3 == 0) {
      for (size_t k = 0; k < 3; ++k) EXPECT_EQ(taken[k] - start.taken[k], (s - 169) / 3);
    }
    LoaderOptions own = options_;
    own.seed += static_cast<uint64_t>(start.keys[source]) * 0x9E3779B97F4A7C15;
    TokenBatch expected;
    Loader(sources_[source].set, own).fill(at.index, 1, expected);
    mixture.fill(s, 1, batch);
    EXPECT_EQ(batch.tokens, expected.tokens);
  }
  Mixture moved = make(stages_);
  moved.begin(stages_, start);
  TokenBatch all;
  mixture.fill(170, 130, all);
  moved.fill(170, 130, batch);
  EXPECT_EQ(batch.tokens, all.tokens);
  EXPECT_LOAM_ERROR(mixture.place(169), ErrorCode::kInvalidArgument, "sample 169, of an order that begins at 170");
  EXPECT_LOAM_ERROR(mixture.counts(169), ErrorCode::kInvalidArgument, "sample 169");
  EXPECT_LOAM_ERROR(Mixture(sources_, stages_, options_, {1, {1, 0}, {}}), ErrorCode::kInvalidArgument, "of 2 sources");
  EXPECT_LOAM_ERROR(Mixture(sources_, stages_, options_, {0, {}, {1}}), ErrorCode::kInvalidArgument, "1 keys");
}

TEST_F(MixtureTest, WhatDoesNotFitIsRefused) {
  EXPECT_LOAM_ERROR(make({{0, {1, 1}}}), ErrorCode::kInvalidArgument, "2 weights for 3 sources");
  EXPECT_LOAM_ERROR(make({{1, {1, 1, 1}}}), ErrorCode::kInvalidArgument, "begins at sample 1");
  EXPECT_LOAM_ERROR(make({}), ErrorCode::kInvalidArgument, "0 stages");
  options_.length = 100;
  EXPECT_LOAM_ERROR(make({{0, {1, 1, 1}}}), ErrorCode::kInvalidArgument, "data source \"s0\": loader: the set has 41");
}

}  // namespace
}  // namespace loam
