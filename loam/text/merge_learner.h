// The core of BPE training: counts of adjacent pairs, kept up to date while pairs merge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "loam/text/bpe_train.h"
#include "loam/text/piece_counter.h"

namespace loam {

// All pieces lie in one array of symbols, a symbol as long as its bytes: its id stands at its first and at its last
// position, so both neighbours of a symbol are found by adding or subtracting a length. A pair knows its count and
// where it may stand. A merge visits only these places and changes only the counts of the pairs left and right of each.
//
// Invariant: all occurrences of a pair that holds token t arise while t is made (or at the start, for bytes). So after
// that the count of a pair only falls, and a heap entry whose count is out of date can be put back with the lower count
// when it reaches the top.
class MergeLearner {
 public:
  // Pairs seen less than `min_frequency` (at least 1) times are never merged.
  // Error{kInvalidArgument} if the distinct pieces have more than 2^32 - 2 bytes together.
  MergeLearner(const PieceCounter& pieces, int64_t min_frequency);

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

  uint32_t pair_index(int32_t left, int32_t right);
  void add_place(int32_t left, int32_t right, int64_t weight, uint32_t place);
  void remove(int32_t left, int32_t right, int64_t weight);
  void merge_at(uint32_t place, int32_t left, int32_t right, int32_t made);
  Merge merge(uint32_t pair);
  bool worse(const Candidate& a, const Candidate& b) const;
  int compare_bytes(int32_t a, int32_t b) const;
  void push(uint32_t pair);
  void add_token(std::string bytes);
  int32_t length(int32_t token) const { return static_cast<int32_t>(tokens_[token].size()); }

  int64_t min_frequency_;
  std::vector<int32_t> symbols_;    // pieces with a kGap before, between and behind them
  std::vector<uint32_t> piece_of_;  // of each position
  std::vector<int64_t> weights_;    // of each piece
  std::vector<std::string> tokens_;
  std::vector<uint64_t> token_front_;  // the first eight bytes, most significant first, for fast comparison
  std::unordered_map<uint64_t, uint32_t> index_of_pair_;
  std::vector<Pair> pairs_;
  std::vector<uint32_t> new_pairs_;  // of the current merge
  std::vector<Candidate> heap_;
};

}  // namespace loam
