#include "loam/train/spikes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/harness/expect_error.h"

namespace loam {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

SpikeConfig window_of(int64_t window, double threshold = 4) {
  SpikeConfig config;
  config.window = window;
  config.threshold = threshold;
  return config;
}

// Losses 1..9 tenths have the median 0.5 and the MAD 0.2 (of distances 0, 0.1 twice, ... 0.4 twice), by hand.
TEST(Spikes, BoundIsMedianPlusRobustDeviations) {
  SpikeDetector detector(window_of(9));
  for (const int i : {5, 1, 9, 2, 8, 3, 7, 4, 6}) detector.add(0.1 * i, 1);
  const double bound = 0.5 + 4 * 1.4826 * 0.2;
  EXPECT_FALSE(detector.judge(bound - 1e-6, 1));
  const auto spike = detector.judge(bound + 1e-6, 1);
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->what, "loss");
  EXPECT_NEAR(*spike->median, 0.5, 1e-12);
  EXPECT_NEAR(*spike->bound, bound, 1e-12);
  EXPECT_FALSE(detector.judge(-100, 1));  // a fall is none
}

// exp(0), exp(1), ... exp(9): logarithms of median 4.5 and MAD 2.5.
TEST(Spikes, GradientNormsAreComparedByTheirLogarithm) {
  SpikeDetector detector(window_of(10));
  for (int i = 0; i < 10; ++i) detector.add(2, std::exp(i));
  const double bound = 4.5 + 4 * 1.4826 * 2.5;
  EXPECT_FALSE(detector.judge(2, std::exp(bound - 1e-6)));
  const auto spike = detector.judge(2, std::exp(bound + 1e-6));
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->what, "gradient norm");
  EXPECT_NEAR(*spike->bound / std::exp(bound), 1, 1e-9);
}

TEST(Spikes, ValuesThatHardlyVaryHaveALeastDeviation) {
  SpikeDetector detector(window_of(8));
  for (int i = 0; i < 8; ++i) detector.add(1, 1);
  EXPECT_FALSE(detector.judge(1.039, 1));
  EXPECT_TRUE(detector.judge(1.041, 1));
  EXPECT_FALSE(detector.judge(1, 1.039));  // its logarithm is below 0.04
  EXPECT_TRUE(detector.judge(1, 1.042));
}

TEST(Spikes, HalfTheWindowMustBeKnownAndOnlyTheWindowCounts) {
  SpikeDetector detector(window_of(8));
  for (int i = 0; i < 3; ++i) detector.add(1, 1);
  EXPECT_FALSE(detector.judge(100, 1e6));
  detector.add(1, 1);
  EXPECT_TRUE(detector.judge(100, 1));
  for (int i = 0; i < 8; ++i) detector.add(50, 1);
  EXPECT_FALSE(detector.judge(50, 1));  // what it was before is forgotten
}

TEST(Spikes, WhatIsNotFiniteIsASpikeAtOnceAndNeverRemembered) {
  SpikeDetector detector(window_of(8));
  const double nan = std::nan("");
  for (const double bad : {nan, kInfinity, -kInfinity}) {
    EXPECT_EQ(detector.judge(bad, 1)->what, "loss");
    EXPECT_EQ(detector.judge(1, bad)->what, "gradient norm");
    EXPECT_FALSE(detector.judge(1, bad)->bound);
    detector.add(bad, bad);
  }
  detector.add(1, 0);  // the logarithm is not finite
  EXPECT_EQ(detector.to_json().at("losses").as_array().size(), 1u);
  EXPECT_TRUE(detector.to_json().at("log_norms").as_array().empty());
}

TEST(Spikes, HistoryComesBackBitForBit) {
  SpikeDetector detector(window_of(64)), back(window_of(64)), shorter(window_of(8));
  for (int i = 1; i <= 100; ++i) detector.add(1.0 / i, std::exp(1.0 / i));
  back.from_json(Json::parse(detector.to_json().dump()));
  EXPECT_EQ(back.to_json(), detector.to_json());
  shorter.from_json(detector.to_json());
  EXPECT_EQ(shorter.to_json().at("losses").as_array().size(), 8u);
  EXPECT_EQ(shorter.to_json().at("losses").as_array().back().as_double(), 1.0 / 100);
  for (const char* hostile : {"[]", "{}", R"({"losses": 3, "log_norms": []})", R"({"losses": ["x"], "log_norms": []})"})
    EXPECT_LOAM_ERROR(back.from_json(Json::parse(hostile)), ErrorCode::kBadFormat, "");
  EXPECT_EQ(back.to_json(), detector.to_json());
}

// Against a walk over the batches that asks of each whether it is left out.
TEST(BatchOrder, TakesTheBatchesThatAreNotLeftOut) {
  BatchOrder order;
  order.leave_out(3, 5);
  order.leave_out(5, 6);
  order.leave_out(10, 20);
  EXPECT_EQ(order.left_out().size(), 2u);
  int64_t batch = 0;
  for (int64_t step = 0; step < 40; ++step, ++batch) {
    while ((batch >= 3 && batch < 6) || (batch >= 10 && batch < 20)) ++batch;
    EXPECT_EQ(order.batch_after(step), batch) << step;
  }
  BatchOrder back;
  back.from_json(Json::parse(order.to_json().dump()));
  EXPECT_EQ(back, order);
  EXPECT_THROW(order.leave_out(19, 30), Error);
  EXPECT_THROW(order.leave_out(30, 30), Error);
}

TEST(BatchOrder, RefusesWhatIsNoOrder) {
  BatchOrder order;
  for (const char* hostile : {"3", "[3]", "[[1]]", "[[1,2,3]]", "[[2,1]]", "[[1,1]]", "[[-1,2]]", "[[5,6],[1,2]]",
                              "[[1,5],[4,6]]", "[[0,9223372036854775807]]", "[[\"a\",\"b\"]]"}) {
    EXPECT_LOAM_ERROR(order.from_json(Json::parse(hostile)), ErrorCode::kBadFormat, "");
  }
  EXPECT_TRUE(order.left_out().empty());
}

}  // namespace
}  // namespace loam
