// The core of BPE training: counts of adjacent pairs, kept up to date while pairs merge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loam/text/pair_index.h"
#include "loam/text/tokenizer_model.h"

namespace loam {

struct MergeLimits {
  int64_t min_frequency = 1;     // a pair seen less often is never merged
  int64_t max_token_length = 0;  // bytes; a pair that would be longer is none; 0: any length
};

// All pieces lie in one array of symbols, a symbol as long as its bytes: its id stands at its first and at its last
// position, so both neighbours of a symbol are found by adding or subtracting a length. A pair knows its count and
// where it may stand. A merge visits only these places and changes only the counts of the pairs left and right of each.
//
// Invariant: all occurrences of a pair that holds token t arise while t is made (or at the start, for bytes). So after
// that the count of a pair only falls: a pair that is below min_frequency then is forgotten, and a heap entry whose
// count is out of date can be put back with the lower count when it reaches the top.
class MergeLearner {
 public:
  // A piece takes a position for each byte and one more. The most there may be, and about what each costs in memory
  // while pairs merge.
  static constexpr int64_t kMaxPositions = (int64_t{1} << 32) - 2;
  static constexpr int64_t kBytesAPosition = 24;

  explicit MergeLearner(MergeLimits limits);
  void reserve(int64_t pieces, int64_t positions);

  // REQUIRES: before the first next(), and kMaxPositions hold. Each piece comes once.
  void add(std::string_view piece, int64_t count);
  // Merges the pair of the highest count, of equal counts the greatest by bytes; none if no pair is left.
  std::optional<Merge> next();

 private:
  struct Pair {
    int32_t left, right;
    int64_t count;
    std::vector<uint32_t> places;  // ascending; may hold places where the pair no longer stands
  };
  struct Candidate {
    int64_t count;
    uint32_t pair;
  };

  void start();
  bool is_wanted(int32_t left, int32_t right) const {
    return int64_t{length(left)} + length(right) <= max_token_length_;
  }
  void add_place(int32_t left, int32_t right, int64_t weight, uint32_t place);
  void remove(int32_t left, int32_t right, int64_t weight);
  void merge_at(uint32_t place, int32_t left, int32_t right, int32_t made);
  Merge merge(uint32_t pair);
  uint32_t new_pair(int32_t left, int32_t right);
  void forget(uint32_t pair);
  bool worse(const Candidate& a, const Candidate& b) const;
  int compare_bytes(int32_t a, int32_t b) const;
  void push(uint32_t pair);
  void add_token(std::string bytes);
  int32_t length(int32_t token) const { return lengths_[token]; }

  int64_t min_frequency_, max_token_length_;
  bool started_ = false;
  std::vector<int32_t> symbols_;    // pieces with a kGap before, between and behind them
  std::vector<uint32_t> piece_of_;  // of each position
  std::vector<int64_t> weights_;    // of each piece
  std::vector<std::string> tokens_;
  std::vector<int32_t> lengths_;
  std::vector<uint64_t> token_front_;  // the first eight bytes, most significant first, for fast comparison
  PairIndex index_;                    // of the pairs that may still merge
  std::vector<Pair> pairs_;
  std::vector<uint32_t> free_pairs_;  // to be used again: none of them is in the heap
  std::vector<uint32_t> new_pairs_;   // of the current merge
  int32_t made_ = -1;                 // by the current merge
  std::vector<Candidate> heap_;       // one for each pair that may still merge, and for some that may not
};

}  // namespace loam
