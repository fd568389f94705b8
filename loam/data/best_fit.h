// Documents packed whole into rows: best-fit decreasing (Johnson 1973), as Ding et al. 2024, "Fewer Truncations Improve
// Language Modeling", use it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loam/data/token_shard.h"

namespace loam {

// The row of each item, rows being numbered as they are opened. Items go from the longest to the shortest, equal ones
// in their order, each into the row with the least room that still holds it; of several such rows into the one that was
// filled last. O(n log `row`). REQUIRES: sizes in [1, `row`].
std::vector<uint32_t> best_fit_decreasing(std::span<const uint32_t> sizes, int64_t row);

// The rows of a token set. A document longer than T tokens is cut into pieces of T and a rest; pieces and short
// documents fill rows of T. Every token stands in exactly one row. 2^20 pieces in a row of the set are packed at a
// time, so that it takes four bytes a piece, four a row, and some 30 MB while it is made. Thread safety: const members
// may be called from any thread.
class BestFitPlan {
 public:
  BestFitPlan(const TokenSet& set, int64_t length);

  struct Piece {
    int64_t begin, size;  // in the set's stream
    bool ends_document;
  };
  int64_t rows() const { return static_cast<int64_t>(row_begins_.size()); }
  // Those of a row, the longest first.
  std::vector<Piece> row(int64_t index) const;

 private:
  struct Bucket {
    int64_t first_row, first_piece, token_begin;
  };
  void close_bucket(int64_t token_begin, std::span<const uint32_t> begins, std::span<const uint32_t> sizes);

  const TokenSet& set_;
  int64_t length_;
  std::vector<Bucket> buckets_;
  std::vector<uint32_t> row_begins_;  // index of the row's first piece, in its bucket
  std::vector<uint32_t> pieces_;      // begins in the stream, from the bucket's token_begin on
};

}  // namespace loam
