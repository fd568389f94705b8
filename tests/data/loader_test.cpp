#include "loam/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;
using Ids = std::vector<int32_t>;

// A set whose token at position p of the stream is p, with documents of these lengths.
std::shared_ptr<const TokenSet> counting_set(const Path& path, const std::vector<int64_t>& lengths,
                                             int64_t shard_tokens = 1 << 20) {
  TokenSetWriter writer(path, {"", 1'000'000, -1, 0, 0, 0}, shard_tokens);
  int32_t next = 0;
  for (const int64_t length : lengths) {
    Ids document(static_cast<size_t>(length));
    for (int32_t& id : document) id = next++;
    writer.add(document, length);
  }
  writer.finish();
  return std::make_shared<const TokenSet>(path);
}

TEST(PermuteIndex, IsAPermutation) {
  for (const uint64_t n : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 64, 65, 100, 1000, 4096, 4097}) {
    for (const uint64_t epoch : {0, 1, 2}) {
      std::vector<bool> seen(n, false);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t image = permute_index(i, n, 42, epoch);
        ASSERT_LT(image, n);
        ASSERT_FALSE(seen[image]) << n << " " << i;
        seen[image] = true;
      }
    }
  }
  EXPECT_LOAM_ERROR(permute_index(3, 3, 0, 0), ErrorCode::kInvalidArgument, "not below");
  EXPECT_LT(permute_index((uint64_t{1} << 63) + 4, (uint64_t{1} << 63) + 5, 1, 1), (uint64_t{1} << 63) + 5);
}

// Of a random permutation: rank correlation 0 with deviation 1/sqrt(n-1), and one fixed point with deviation 1. Six
// deviations are allowed.
TEST(PermuteIndex, LooksRandom) {
  constexpr int64_t n = 10'000;
  const auto image = [](int64_t i, uint64_t seed, uint64_t epoch) {
    return static_cast<double>(permute_index(static_cast<uint64_t>(i), n, seed, epoch));
  };
  const double mean = (n - 1) / 2.0, variance = (double{n} * n - 1) / 12.0;
  const auto correlation = [&](auto&& x, auto&& y) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += (x(i) - mean) * (y(i) - mean);
    return sum / n / variance;
  };
  const auto identity = [](int64_t i) { return static_cast<double>(i); };
  const auto key = [&](uint64_t seed, uint64_t epoch) { return [=](int64_t i) { return image(i, seed, epoch); }; };
  const double bound = 6 / std::sqrt(n - 1.0);
  EXPECT_LT(std::abs(correlation(identity, key(1, 0))), bound);
  EXPECT_LT(std::abs(correlation(key(1, 0), key(1, 1))), bound);
  EXPECT_LT(std::abs(correlation(key(1, 0), key(2, 0))), bound);
  EXPECT_LT(std::abs(correlation(key(1, 0), [&](int64_t i) { return image((i + 1) % n, 1, 0); })), bound);
  int fixed = 0;
  for (int64_t i = 0; i < n; ++i) fixed += image(i, 1, 0) == static_cast<double>(i);
  EXPECT_LE(fixed, 7);
}

TEST(Loader, EachEpochIsAPermutationOfAllWindows) {
  const TempDir directory;
  const auto set = counting_set(directory / "s", {40, 1, 200, 3, 60}, 50);  // 304 tokens
  const Loader loader(set, {.length = 7, .mask_documents = false, .shuffle = true, .seed = 5});
  const int64_t samples = loader.samples_per_epoch();
  EXPECT_EQ(samples, 43);  // 43 * 7 + 1 = 302 tokens
  std::vector<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    TokenBatch batch;
    loader.fill(epoch * samples, samples, batch);
    std::vector<int32_t> order;
    for (int64_t row = 0; row < samples; ++row) {
      for (int64_t t = 0; t < 7; ++t) {
        const auto at = static_cast<size_t>(row * 7 + t);
        ASSERT_EQ(batch.tokens[at], batch.tokens[static_cast<size_t>(row * 7)] + t);
        ASSERT_EQ(batch.targets[at], batch.tokens[at] + 1);
        ASSERT_EQ(batch.positions[at], t);
        ASSERT_EQ(batch.first_key[at], 0);
      }
      order.push_back(batch.tokens[static_cast<size_t>(row * 7)]);
    }
    EXPECT_EQ(batch.target_count(), samples * 7);
    for (const auto& other : orders) EXPECT_NE(order, other);
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    for (int32_t i = 0; i < 43; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i * 7);
  }
  TokenBatch one, two;
  loader.fill(0, samples, one);
  Loader(set, {.length = 7, .mask_documents = false, .shuffle = true, .seed = 6}).fill(0, samples, two);
  EXPECT_NE(one.tokens, two.tokens);
}

TEST(Loader, WithoutShuffleWindowsComeInOrder) {
  const TempDir directory;
  const Loader loader(counting_set(directory / "s", {100}),
                      {.length = 9, .mask_documents = true, .shuffle = false, .seed = 5});
  TokenBatch batch;
  loader.fill(0, 22, batch);  // two epochs of 11
  for (int64_t row = 0; row < 22; ++row) EXPECT_EQ(batch.tokens[static_cast<size_t>(row * 9)], row % 11 * 9);
}

// The whole state is the number of samples taken: any way to cut the samples gives the same batches, also those of a
// run that stopped and went on with a new loader, and those of two ranks that take turns.
TEST(Loader, AnyCutOfTheSamplesIsTheSame) {
  const TempDir directory;
  const auto set = counting_set(directory / "s", {30, 8, 1, 77, 16, 2, 2, 90}, 64);
  const LoaderOptions options = {.length = 8, .mask_documents = true, .shuffle = true, .seed = 9};
  const Loader loader(set, options);
  constexpr int64_t kRows = 100;  // more than three epochs
  TokenBatch all;
  loader.fill(3, kRows, all);
  for (const int64_t step : {1, 2, 7, 50}) {
    TokenBatch joined, part;
    for (int64_t row = 0; row < kRows; row += step) {
      Loader(set, options).fill(3 + row, std::min(step, kRows - row), part);
      const auto append = [](Ids& to, const Ids& from) { to.insert(to.end(), from.begin(), from.end()); };
      append(joined.tokens, part.tokens);
      append(joined.targets, part.targets);
      append(joined.first_key, part.first_key);
      append(joined.positions, part.positions);
    }
    EXPECT_EQ(joined.tokens, all.tokens);
    EXPECT_EQ(joined.targets, all.targets);
    EXPECT_EQ(joined.first_key, all.first_key);
    EXPECT_EQ(joined.positions, all.positions);
  }
}

// A document that begins with the end of text tells the one before it that it ends, and nothing else.
TEST(Loader, TheLabelAtASeamIsTheEndOfText) {
  const TempDir directory;
  TokenSetWriter writer(directory / "s", {"", 100, 9, 0, 0, 0});
  writer.add(Ids{9, 1, 2}, 2);
  writer.add(Ids{9, 3}, 1);
  writer.add(Ids{9, 4, 5, 6}, 3);
  writer.finish();
  const Loader loader(std::make_shared<const TokenSet>(directory / "s"),
                      {.length = 8, .mask_documents = true, .shuffle = false, .seed = 0});
  TokenBatch batch;
  loader.fill(0, 1, batch);
  EXPECT_EQ(batch.tokens, (Ids{9, 1, 2, 9, 3, 9, 4, 5}));
  EXPECT_EQ(batch.targets, (Ids{1, 2, 9, 3, 9, 4, 5, 6}));
  EXPECT_EQ(batch.first_key, (Ids{0, 0, 0, 3, 3, 5, 5, 5}));
}

// Rows of 4: documents of length T, 1, T + 1, and ends on, before and behind a row's edge.
TEST(Loader, DocumentsAreKeptApart) {
  const TempDir directory;
  //  stream:   0 1 2 3 | 4 | 5 6 7 8 9 | 10 11 | 12 | 13 14 15 16
  const auto set = counting_set(directory / "s", {4, 1, 5, 2, 1, 4}, 6);
  const Loader loader(set, {.length = 4, .mask_documents = true, .shuffle = false, .seed = 0});
  ASSERT_EQ(loader.samples_per_epoch(), 4);
  TokenBatch batch;
  loader.fill(0, 4, batch);
  EXPECT_EQ(batch.tokens, (Ids{0, 1, 2, 3, /**/ 4, 5, 6, 7, /**/ 8, 9, 10, 11, /**/ 12, 13, 14, 15}));
  EXPECT_EQ(batch.targets, (Ids{1, 2, 3, -1, /**/ -1, 6, 7, 8, /**/ 9, -1, 11, -1, /**/ -1, 14, 15, 16}));
  EXPECT_EQ(batch.first_key, (Ids{0, 0, 0, 0, /**/ 0, 1, 1, 1, /**/ 0, 0, 2, 2, /**/ 0, 1, 1, 1}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, /**/ 0, 0, 1, 2, /**/ 0, 1, 0, 1, /**/ 0, 0, 1, 2}));
  EXPECT_EQ(batch.target_count(), 11);
}

// Against a slow, obvious reference, on random documents, for many row lengths.
TEST(Loader, MaskingMatchesAPerTokenReference) {
  const TempDir directory;
  std::vector<int64_t> lengths;
  uint32_t state = 1;
  for (int i = 0; i < 60; ++i) {
    state = state * 1664525u + 1013904223u;
    lengths.push_back(1 + (state >> 24) % (i % 3 == 0 ? 2 : 20));
  }
  const auto set = counting_set(directory / "s", lengths, 32);
  std::vector<int64_t> document;
  for (size_t d = 0; d < lengths.size(); ++d)
    document.insert(document.end(), static_cast<size_t>(lengths[d]), static_cast<int64_t>(d));
  for (const int64_t T : {1, 2, 3, 8, 13, 64}) {
    const Loader loader(set, {.length = T, .mask_documents = true, .shuffle = true, .seed = 3});
    TokenBatch batch;
    loader.fill(0, 2 * loader.samples_per_epoch(), batch);
    for (size_t at = 0; at < batch.tokens.size(); ++at) {
      const size_t row_begin = at / static_cast<size_t>(T) * static_cast<size_t>(T);
      const auto p = static_cast<size_t>(batch.tokens[at]);  // the position in the stream
      size_t first = at;
      while (first > row_begin && document[static_cast<size_t>(batch.tokens[first - 1])] == document[p]) --first;
      ASSERT_EQ(batch.targets[at], document[p] == document[p + 1] ? static_cast<int32_t>(p + 1) : -1);
      ASSERT_EQ(batch.first_key[at], static_cast<int32_t>(first - row_begin));
      ASSERT_EQ(batch.positions[at], static_cast<int32_t>(at - first));
    }
  }
}

TEST(Loader, ShortSetsAreRefused) {
  const TempDir directory;
  const auto set = counting_set(directory / "s", {3, 5});
  EXPECT_EQ(Loader(set, {.length = 7, .mask_documents = true, .shuffle = true, .seed = 0}).samples_per_epoch(), 1);
  const auto open = [&](int64_t length) {
    Loader(set, {.length = length, .mask_documents = true, .shuffle = true, .seed = 0});
  };
  EXPECT_LOAM_ERROR(open(8), ErrorCode::kInvalidArgument, "the set has 8 tokens");
  EXPECT_LOAM_ERROR(open(0), ErrorCode::kInvalidArgument, "rows of 0 tokens");
  TokenBatch batch;
  const Loader loader(set, {.length = 7, .mask_documents = true, .shuffle = true, .seed = 0});
  EXPECT_LOAM_ERROR(loader.fill(-1, 1, batch), ErrorCode::kInvalidArgument, "sample -1");
}

}  // namespace
}  // namespace loam
