// Legend: T tokens a row.
#include "loam/data/loader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "loam/base/error.h"
#include "loam/base/philox.h"

namespace loam {

int64_t TokenBatch::target_count() const {
  return static_cast<int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), -1);
}

void TokenBatch::resize(int64_t new_rows, int64_t new_length) {
  rows = new_rows;
  length = new_length;
  for (std::vector<int32_t>* values : {&tokens, &targets, &first_key, &positions}) {
    values->resize(static_cast<size_t>(rows * length));
  }
}

TokenRow TokenBatch::row(int64_t index) {
  const auto at = static_cast<size_t>(index * length), count = static_cast<size_t>(length);
  const auto part = [&](std::vector<int32_t>& values) { return std::span(values).subspan(at, count); };
  return {part(tokens), part(targets), part(first_key), part(positions)};
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

void Loader::check(const TokenSet& set, const LoaderOptions& options) {
  LOAM_CHECK(options.length > 0, "loader: rows of {} tokens", options.length);
  LOAM_CHECK(options.best_fit || set.tokens() > options.length,
             "loader: the set has {} tokens, fewer than one row of {} and its last target need", set.tokens(),
             options.length);
}

Loader::Loader(std::shared_ptr<const TokenSet> set, LoaderOptions options) : set_(std::move(set)), options_(options) {
  check(*set_, options_);
  if (options_.best_fit) plan_.emplace(*set_, options_.length);
  samples_ = plan_ ? plan_->rows() : (set_->tokens() - 1) / options_.length;
}

double Loader::padding_share() const {
  if (!plan_) return 0;
  return 1 -
         static_cast<double>(set_->tokens()) / (static_cast<double>(samples_) * static_cast<double>(options_.length));
}

int64_t Loader::row_of(int64_t sample) const {
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

void Loader::fill_window(int64_t begin, const TokenRow& row) const {
  set_->read(begin, row.tokens);
  set_->read(begin + 1, row.targets);
  if (options_.mask_documents) {
    mask_documents(*set_, begin, row.targets, row.first_key, row.positions);
  } else {
    std::fill(row.first_key.begin(), row.first_key.end(), 0);
    std::iota(row.positions.begin(), row.positions.end(), 0);
  }
}

void Loader::fill_packed(int64_t index, const TokenRow& row) const {
  const int32_t end_of_text = set_->info().end_of_text;
  size_t at = 0;
  // Of the next `size` tokens of the row.
  const auto segment = [&](size_t size) {
    const int32_t first = options_.mask_documents ? static_cast<int32_t>(at) : 0;
    std::fill_n(row.first_key.begin() + static_cast<std::ptrdiff_t>(at), size, first);
    std::iota(row.positions.begin() + static_cast<std::ptrdiff_t>(at),
              row.positions.begin() + static_cast<std::ptrdiff_t>(at + size), static_cast<int32_t>(at) - first);
    at += size;
  };
  for (const BestFitPlan::Piece& piece : plan_->row(index)) {
    const auto size = static_cast<size_t>(piece.size);
    set_->read(piece.begin, row.tokens.subspan(at, size));
    const bool last = piece.begin + piece.size == set_->tokens();
    set_->read(piece.begin + 1, row.targets.subspan(at, size - last));
    int32_t& seam = row.targets[at + size - 1];
    if (last || (piece.ends_document && seam != end_of_text)) seam = -1;
    if (at > 0 && !options_.mask_documents) row.targets[at - 1] = row.tokens[at];
    segment(size);
  }
  if (at == row.tokens.size()) return;
  const auto padding = static_cast<std::ptrdiff_t>(at);
  std::fill(row.tokens.begin() + padding, row.tokens.end(), std::max(end_of_text, 0));
  std::fill(row.targets.begin() + padding, row.targets.end(), -1);
  segment(row.tokens.size() - at);
}

void Loader::fill_row(int64_t sample, const TokenRow& row) const {
  const int64_t index = row_of(sample);
  plan_ ? fill_packed(index, row) : fill_window(index * options_.length, row);
}

void Loader::fill(int64_t first_sample, int64_t rows, TokenBatch& batch) const {
  LOAM_CHECK(first_sample >= 0 && rows >= 0, "loader: {} rows from sample {}", rows, first_sample);
  batch.resize(rows, options_.length);
  for (int64_t row = 0; row < rows; ++row) fill_row(first_sample + row, batch.row(row));
}

}  // namespace loam
