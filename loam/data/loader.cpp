// Legend: T tokens a row, N windows an epoch.
#include "loam/data/loader.h"

#include <algorithm>
#include <array>
#include <bit>

#include "loam/base/error.h"
#include "loam/base/philox.h"

namespace loam {

int64_t TokenBatch::target_count() const {
  return static_cast<int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), -1);
}

namespace {

// A bijection of 2h-bit numbers: balanced Feistel rounds, whatever the round function.
class Feistel {
 public:
  Feistel(int half_bits, uint64_t seed, uint64_t epoch)
      : half_bits_(half_bits), mask_((uint64_t{1} << half_bits) - 1), seed_(seed), epoch_(epoch) {}

  uint64_t operator()(uint64_t value) const {
    uint64_t left = value >> half_bits_, right = value & mask_;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (mix(round, right) & mask_);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

 private:
  static constexpr uint32_t kRounds = 8;

  uint64_t mix(uint32_t round, uint64_t right) const {
    return philox4x32(
        {static_cast<uint32_t>(right), round, static_cast<uint32_t>(epoch_), static_cast<uint32_t>(epoch_ >> 32)},
        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)})[0];
  }

  int half_bits_;  // at most 32
  uint64_t mask_, seed_, epoch_;
};

}  // namespace

uint64_t permute_index(uint64_t index, uint64_t n, uint64_t seed, uint64_t epoch) {
  LOAM_CHECK(index < n, "permute_index: {} is not below {}", index, n);
  if (n == 1) return 0;
  const Feistel feistel((std::bit_width(n - 1) + 1) / 2, seed, epoch);
  // Walks along the cycle until it is back below n. The domain is below 4n, so that takes less than four steps on
  // average.
  do {
    index = feistel(index);
  } while (index >= n);
  return index;
}

Loader::Loader(std::shared_ptr<const TokenSet> set, LoaderOptions options) : set_(std::move(set)), options_(options) {
  LOAM_CHECK(options_.length > 0, "loader: rows of {} tokens", options_.length);
  samples_ = (set_->tokens() - 1) / options_.length;
  LOAM_CHECK(samples_ > 0, "loader: the set has {} tokens, fewer than one row of {} and its last target need",
             set_->tokens(), options_.length);
}

int64_t Loader::window_of(int64_t sample) const {
  const int64_t epoch = sample / samples_, index = sample % samples_;
  if (!options_.shuffle) return index;
  return static_cast<int64_t>(permute_index(static_cast<uint64_t>(index), static_cast<uint64_t>(samples_),
                                            options_.seed, static_cast<uint64_t>(epoch)));
}

namespace {

// Cuts one row at the documents' ends. `begin` is the row's first token in the stream.
void mask_documents(const TokenSet& set, int64_t begin, std::span<int32_t> targets, std::span<int32_t> first_key,
                    std::span<int32_t> positions) {
  const auto T = static_cast<int64_t>(targets.size());
  int64_t document = set.document_of(begin);
  for (int64_t first = 0; first < T;) {
    const int64_t end = set.document_begin(++document) - begin;  // of this document, in the row; may lie behind it
    const int64_t stop = std::min(end, T);
    if (stop <= first) fail(ErrorCode::kIo, "loader: the token set has changed while in use");
    for (int64_t t = first; t < stop; ++t) {
      first_key[static_cast<size_t>(t)] = static_cast<int32_t>(first);
      positions[static_cast<size_t>(t)] = static_cast<int32_t>(t - first);
    }
    // The first token of the next document says nothing of it if it is the token that ends the text.
    if (end <= T && targets[static_cast<size_t>(end - 1)] != set.info().end_of_text)
      targets[static_cast<size_t>(end - 1)] = -1;
    first = stop;
  }
}

}  // namespace

void Loader::fill(int64_t first_sample, int64_t rows, TokenBatch& batch) const {
  LOAM_CHECK(first_sample >= 0 && rows >= 0, "loader: {} rows from sample {}", rows, first_sample);
  const int64_t T = options_.length;
  const auto size = static_cast<size_t>(rows * T);
  batch.rows = rows;
  batch.length = T;
  batch.tokens.resize(size);
  batch.targets.resize(size);
  batch.first_key.assign(size, 0);
  batch.positions.resize(size);
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(row * T), length = static_cast<size_t>(T);
    const std::span tokens(batch.tokens.data() + at, length), targets(batch.targets.data() + at, length);
    const std::span first_key(batch.first_key.data() + at, length), positions(batch.positions.data() + at, length);
    const int64_t begin = window_of(first_sample + row) * T;
    set_->read(begin, tokens);
    set_->read(begin + 1, targets);
    if (options_.mask_documents) {
      mask_documents(*set_, begin, targets, first_key, positions);
    } else {
      for (int64_t t = 0; t < T; ++t) positions[static_cast<size_t>(t)] = static_cast<int32_t>(t);
    }
  }
}

}  // namespace loam
