#include "loam/data/best_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "loam/base/philox.h"
#include "loam/data/loader.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;
using Ids = std::vector<int32_t>;

constexpr int32_t kEnd = 999'999;

// A set whose token at position p of the stream is p, but for the last one of each document with `ended`.
std::shared_ptr<const TokenSet> counting_set(const Path& path, const std::vector<int64_t>& lengths,
                                             int32_t end_of_text = -1, bool ended = false, int64_t shard = 1 << 20) {
  TokenSetWriter writer(path, {"", 1'000'000, end_of_text, 0, 0, 0}, shard);
  int32_t next = 0;
  for (const int64_t length : lengths) {
    Ids document(static_cast<size_t>(length));
    for (int32_t& id : document) id = next++;
    if (ended) document.back() = end_of_text;
    writer.add(document, length);
  }
  writer.finish();
  return std::make_shared<const TokenSet>(path);
}

std::vector<int64_t> random_lengths(int64_t count, int64_t most, uint64_t seed) {
  const PhiloxStream random{seed, 1};
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<uint64_t>(i);
    lengths.push_back(1 + static_cast<int64_t>(random.below(at, static_cast<uint64_t>(i % 5 == 0 ? most : most / 3))));
  }
  return lengths;
}

// The rule itself, in O(n^2): the longest first; each looks at every open row for the least room that holds it.
std::vector<int64_t> reference_fills(std::vector<int64_t> sizes, int64_t row) {
  std::stable_sort(sizes.begin(), sizes.end(), std::greater<>());
  std::vector<int64_t> fills;
  for (const int64_t size : sizes) {
    int64_t* best = nullptr;
    for (int64_t& fill : fills) {
      if (fill + size <= row && (!best || fill > *best)) best = &fill;
    }
    if (best) {
      *best += size;
    } else {
      fills.push_back(size);
    }
  }
  std::sort(fills.begin(), fills.end());
  return fills;
}

TEST(BestFit, FillsRowsAsTheRuleSays) {
  for (const int64_t row : {1, 2, 7, 63, 64, 65, 200, 5000}) {
    for (const int64_t count : {1, 2, 50, 700}) {
      const std::vector<int64_t> lengths = random_lengths(count, row, static_cast<uint64_t>(row + count));
      std::vector<uint32_t> sizes;
      for (const int64_t length : lengths) sizes.push_back(static_cast<uint32_t>(std::min(length, row)));
      const std::vector<uint32_t> row_of = best_fit_decreasing(sizes, row);
      std::map<uint32_t, int64_t> fill;
      for (size_t i = 0; i < sizes.size(); ++i) fill[row_of[i]] += sizes[i];
      std::vector<int64_t> fills;
      for (const auto& [index, filled] : fill) fills.push_back(filled);
      std::sort(fills.begin(), fills.end());
      EXPECT_EQ(fills, reference_fills({sizes.begin(), sizes.end()}, row)) << row << " " << count;
    }
  }
}

// By hand: 6 opens a row, 5 another, 4 fits both and goes where the least room is, 3 to the other, then 2 and 1.
TEST(BestFit, AnExample) {
  const std::vector<uint32_t> sizes{1, 3, 5, 2, 6, 4};
  EXPECT_EQ(best_fit_decreasing(sizes, 10), (std::vector<uint32_t>{2, 1, 1, 1, 0, 0}));
}

TEST(BestFit, EveryTokenStandsInOneRowAndShortDocumentsAreWhole) {
  const TempDir directory;
  const std::vector<int64_t> lengths = random_lengths(400, 90, 3);
  for (const int64_t T : {1, 8, 29, 30, 31, 200}) {
    const auto set = counting_set(directory / fmt::format("{}", T), lengths, -1, false, 500);
    const BestFitPlan plan(*set, T);
    std::vector<int> seen(static_cast<size_t>(set->tokens()));
    int64_t begins = 0;
    for (int64_t row = 0; row < plan.rows(); ++row) {
      int64_t sum = 0, before = T;
      for (const BestFitPlan::Piece& piece : plan.row(row)) {
        ASSERT_GT(piece.size, 0);
        ASSERT_LE(piece.size, before);
        before = piece.size;
        sum += piece.size;
        for (int64_t p = piece.begin; p < piece.begin + piece.size; ++p) ++seen[static_cast<size_t>(p)];
        const int64_t document = set->document_of(piece.begin);
        const int64_t begin = set->document_begin(document), end = set->document_begin(document + 1);
        EXPECT_EQ((piece.begin - begin) % T, 0);
        EXPECT_EQ(piece.begin + piece.size, std::min(piece.begin + T, end));
        EXPECT_EQ(piece.ends_document, piece.begin + piece.size == end);
        begins += piece.begin == begin;
      }
      EXPECT_LE(sum, T);
      EXPECT_GT(sum, 0);
    }
    EXPECT_EQ(begins, 400);
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; })) << T;
  }
}

LoaderOptions packed(int64_t length, bool mask = true, bool shuffle = false) {
  return {.length = length, .mask_documents = mask, .shuffle = shuffle, .seed = 4, .best_fit = true};
}

// Rows of 4: documents of length T, 1, T + 1 and 2, and padding behind what is left.
TEST(PackedRows, DocumentsAroundTheLengthOfARow) {
  const TempDir directory;
  //  stream: 0 1 2 3 | 4 | 5 6 7 8 9 | 10 11
  const auto set = counting_set(directory / "s", {4, 1, 5, 2});
  const Loader loader(set, packed(4));
  ASSERT_EQ(loader.samples_per_epoch(), 3);
  TokenBatch batch;
  loader.fill(0, 3, batch);
  EXPECT_EQ(batch.tokens, (Ids{0, 1, 2, 3, /**/ 5, 6, 7, 8, /**/ 10, 11, 4, 9}));
  EXPECT_EQ(batch.targets, (Ids{1, 2, 3, -1, /**/ 6, 7, 8, 9, /**/ 11, -1, -1, -1}));
  EXPECT_EQ(batch.first_key, (Ids{0, 0, 0, 0, /**/ 0, 0, 0, 0, /**/ 0, 0, 2, 3}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, /**/ 0, 1, 2, 3, /**/ 0, 1, 0, 0}));
  EXPECT_EQ(loader.padding_share(), 0);

  const Loader wider(set, packed(5));
  ASSERT_EQ(wider.samples_per_epoch(), 3);
  wider.fill(0, 3, batch);
  EXPECT_EQ(batch.tokens, (Ids{5, 6, 7, 8, 9, /**/ 0, 1, 2, 3, 4, /**/ 10, 11, 0, 0, 0}));
  EXPECT_EQ(batch.targets, (Ids{6, 7, 8, 9, -1, /**/ 1, 2, 3, -1, -1, /**/ 11, -1, -1, -1, -1}));
  EXPECT_EQ(batch.first_key, (Ids{0, 0, 0, 0, 0, /**/ 0, 0, 0, 0, 4, /**/ 0, 0, 2, 2, 2}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, 4, /**/ 0, 1, 2, 3, 0, /**/ 0, 1, 0, 1, 2}));
  EXPECT_DOUBLE_EQ(wider.padding_share(), 3 / 15.0);
}

// As in the stream: the end of a text is a label, whichever document it stands in.
TEST(PackedRows, TheEndOfATextIsLearnt) {
  const TempDir directory;
  TokenSetWriter writer(directory / "begin", {"", 100, 9, 0, 0, 0});
  for (const Ids& document : {Ids{9, 1, 2}, Ids{9, 3, 4}}) writer.add(document, 2);
  writer.finish();
  TokenBatch batch;
  Loader(std::make_shared<const TokenSet>(directory / "begin"), packed(8)).fill(0, 1, batch);
  EXPECT_EQ(batch.tokens, (Ids{9, 1, 2, 9, 3, 4, 9, 9}));
  EXPECT_EQ(batch.targets, (Ids{1, 2, 9, 3, 4, -1, -1, -1}));
  const auto set = counting_set(directory / "end", {3, 2}, kEnd, true);
  Loader(set, packed(6)).fill(0, 1, batch);
  EXPECT_EQ(batch.tokens, (Ids{0, 1, kEnd, 3, kEnd, kEnd}));
  EXPECT_EQ(batch.targets, (Ids{1, kEnd, -1, kEnd, -1, -1}));
  EXPECT_EQ(batch.first_key, (Ids{0, 0, 0, 3, 3, 5}));
}

TEST(PackedRows, WithoutMasksARowIsOneText) {
  const TempDir directory;
  const auto set = counting_set(directory / "s", {3, 2, 1});
  TokenBatch batch;
  Loader(set, packed(8, false)).fill(0, 1, batch);
  EXPECT_EQ(batch.tokens, (Ids{0, 1, 2, 3, 4, 5, 0, 0}));
  EXPECT_EQ(batch.targets, (Ids{1, 2, 3, 4, 5, -1, -1, -1}));
  EXPECT_EQ(batch.first_key, Ids(8, 0));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
}

// Against a slow, obvious reference, on random documents; every row once an epoch, each in another order.
TEST(PackedRows, MatchAPerTokenReference) {
  const TempDir directory;
  const std::vector<int64_t> lengths = random_lengths(150, 60, 8);
  const auto set = counting_set(directory / "s", lengths, kEnd, false, 100);  // only padding has the end of text
  std::vector<size_t> document, begin;
  for (size_t d = 0; d < lengths.size(); ++d) {
    begin.insert(begin.end(), static_cast<size_t>(lengths[d]), document.size());
    document.insert(document.end(), static_cast<size_t>(lengths[d]), d);
  }
  for (const int64_t T : {1, 7, 20, 64}) {
    const Loader loader(set, packed(T, true, true));
    std::vector<Ids> orders;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      TokenBatch batch;
      loader.fill(epoch * loader.samples_per_epoch(), loader.samples_per_epoch(), batch);
      std::vector<int> seen(document.size());
      for (size_t at = 0; at < batch.tokens.size(); ++at) {
        const size_t row = at / static_cast<size_t>(T) * static_cast<size_t>(T);
        const size_t first = row + static_cast<size_t>(batch.first_key[at]);
        ASSERT_EQ(static_cast<size_t>(batch.positions[at]), at - first);
        if (batch.tokens[at] == kEnd) {
          ASSERT_EQ(batch.targets[at], -1);
          ASSERT_EQ(batch.tokens[first], kEnd);
          continue;
        }
        const auto p = static_cast<size_t>(batch.tokens[at]);  // the position in the stream
        ++seen[p];
        const size_t piece = begin[p] + (p - begin[p]) / static_cast<size_t>(T) * static_cast<size_t>(T);
        ASSERT_EQ(static_cast<size_t>(batch.tokens[first]), piece);
        const bool seam = p + 1 == document.size() || document[p + 1] != document[p];
        ASSERT_EQ(batch.targets[at], seam ? -1 : static_cast<int32_t>(p + 1));
      }
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; })) << T;
      for (const Ids& other : orders) EXPECT_NE(batch.tokens, other);
      orders.push_back(batch.tokens);
    }
  }
}

TEST(PackedRows, ASetShorterThanARowIsOne) {
  const TempDir directory;
  const Loader loader(counting_set(directory / "s", {3}), packed(100));
  EXPECT_EQ(loader.samples_per_epoch(), 1);
  EXPECT_DOUBLE_EQ(loader.padding_share(), 0.97);
}

}  // namespace
}  // namespace loam
