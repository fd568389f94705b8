// Which pairs of tokens merge, how early, and into what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "loam/base/huge_pages.h"
#include "loam/text/perfect_hash.h"

namespace loam {

inline constexpr uint32_t kNoRank = UINT32_MAX;
inline constexpr int32_t kNoMerge = INT32_MAX;
inline constexpr int32_t kNoToken = (1 << 21) - 1;   // merges with nothing
inline constexpr int64_t kMaxTokens = kNoToken - 1;  // of a vocabulary whose tokens merge

// A pair that merges into `id`. Lower ranks merge first, of equal ones the leftmost.
struct RankedMerge {
  int32_t left, right;
  uint32_t rank;
  int32_t id;
};

// A slot is one word, the pair and the index of its merge: what decides the speed of merging is how much of this table
// stays in the cache of a core. Thread safety: const after construction.
class MergeTable {
 public:
  struct Result {
    uint32_t rank;  // kNoRank if the pair does not merge
    int32_t id;
  };

  // Error{kBadFormat} for a pair that is there twice, or for more than 4,194,303 merges. REQUIRES: 0 <= ids <
  // kMaxTokens, and ranks that do not fall.
  explicit MergeTable(std::span<const RankedMerge> merges);

  Result find(int32_t left, int32_t right) const {
    const int32_t index = find_index(place_of(left, right));
    return index == kNoMerge ? Result{kNoRank, -1} : results_[static_cast<size_t>(index)];
  }

  // The same in steps, with other work between them while the table comes from memory. An index is a place in the
  // merges that the constructor got; kNoMerge if the pair does not merge.
  struct Place {
    uint64_t pair;
    size_t slot;
  };
  [[gnu::always_inline]] Place prefetch(int32_t left, int32_t right) const {
    const Place place = place_of(left, right);
    __builtin_prefetch(&slots_[place.slot]);
    return place;
  }
  int32_t find_index(const Place& place) const {
    const uint64_t slot = slots_[place.slot];
    const int32_t index = static_cast<int32_t>(slot & (kMaxPairs - 1));
    const int32_t found = slot >> kIndexBits == place.pair ? index : kNoMerge;
    return rest_.empty() || found != kNoMerge ? found : find_in_rest(place.pair);
  }
  int32_t id(int32_t index) const { return results_[static_cast<size_t>(index)].id; }

  uint32_t ranks() const { return results_.empty() ? 0 : results_.back().rank + 1; }  // the greatest rank plus one
  // No token is made by a merge as late as, or later than, one that it is a part of. Then a merge never brings forth a
  // pair of a lower or equal rank, and all places of one rank can merge in one sweep. True for what training makes.
  bool rising() const { return rising_; }

 private:
  static constexpr int kTokenBits = 21, kIndexBits = 22;
  static constexpr int64_t kMaxPairs = int64_t{1} << kIndexBits;
  static constexpr uint64_t kEmpty = uint64_t{kMaxTokens} << (kTokenBits + kIndexBits);  // a pair that nobody asks for
  static_assert(kMaxTokens < int64_t{1} << kTokenBits && 2 * kTokenBits + kIndexBits == 64);

  static uint64_t pair_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << kTokenBits | static_cast<uint32_t>(right);
  }
  // No two pairs have the same: each step can be undone.
  static uint64_t hash(uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15u;
    pair ^= pair >> 32;
    return pair * 0xBF58476D1CE4E5B9u;
  }
  Place place_of(int32_t left, int32_t right) const {
    const uint64_t pair = pair_of(left, right);
    return {pair, places_.slot(hash(pair))};
  }
  int32_t find_in_rest(uint64_t pair) const;

  PerfectHash places_;
  HugePageVector<uint64_t> slots_;              // pair << kIndexBits | index, or kEmpty
  std::unordered_map<uint64_t, int32_t> rest_;  // pairs that got no slot, which chance does not bring about
  HugePageVector<Result> results_;              // by index
  bool rising_ = true;
};

}  // namespace loam
