// Which pairs of tokens merge, how early, and into what.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loam {

inline constexpr uint32_t kNoRank = UINT32_MAX;

// Open addressing, at most half full, behind a filter of one bit a hash: most pairs that are asked for do not merge,
// and the filter is small enough to stay in the cache of a core. Thread safety: const members may be called from any
// thread.
class MergeTable {
 public:
  struct Result {
    uint32_t rank;  // kNoRank if the pair does not merge; lower merges first
    int32_t id;
  };

  explicit MergeTable(int64_t pairs) {
    size_t capacity = 16;
    while (capacity < 2 * static_cast<size_t>(pairs) + 1) capacity *= 2;
    slots_.resize(capacity, Slot{kEmpty, {kNoRank, -1}});
    filter_.resize(capacity / 16);
  }

  // False if the pair is there already. REQUIRES: ids >= 0, ranks that do not fall from call to call, and not more
  // pairs than the constructor was told.
  bool insert(int32_t left, int32_t right, Result result) {
    const uint64_t pair = key(left, right), mixed = hash(pair);
    Slot& slot = slots_[find_slot(pair, mixed)];
    if (slot.key != kEmpty) return false;
    slot = {pair, result};
    filter_[filter_word(mixed)] |= filter_bit(mixed);
    ranks_ = result.rank + 1;
    const size_t ids = static_cast<size_t>(std::max({left, right, result.id})) + 1;
    if (used_.size() < ids) used_.resize(ids, false);
    if (used_[result.id]) rising_ = false;
    used_[left] = used_[right] = true;
    return true;
  }

  Result find(int32_t left, int32_t right) const {
    const uint64_t pair = key(left, right), mixed = hash(pair);
    if (!(filter_[filter_word(mixed)] & filter_bit(mixed))) return {kNoRank, -1};
    return slots_[find_slot(pair, mixed)].result;
  }

  // The same in two steps, with other work between them while the table comes from memory.
  struct Place {
    uint64_t pair, mixed;
  };
  Place prefetch(int32_t left, int32_t right) const {
    const uint64_t pair = key(left, right), mixed = hash(pair);
    __builtin_prefetch(&slots_[first_slot(mixed)]);
    return {pair, mixed};
  }
  Result find(const Place& place) const { return slots_[find_slot(place.pair, place.mixed)].result; }

  uint32_t ranks() const { return ranks_; }  // the greatest rank plus one
  // No token is made by a merge as late as, or later than, one that it is a part of. Then a merge never brings forth a
  // pair of a lower or equal rank, and all places of one rank can merge in one sweep. True for what training makes.
  bool rising() const { return rising_; }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key;
    Result result;
  };

  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  static uint64_t hash(uint64_t pair) { return (pair * 0x9E3779B97F4A7C15u ^ pair >> 29) * 0xBF58476D1CE4E5B9u; }
  size_t filter_word(uint64_t mixed) const { return (mixed >> 38) & (filter_.size() - 1); }
  static uint64_t filter_bit(uint64_t mixed) { return uint64_t{1} << (mixed >> 32 & 63); }
  size_t first_slot(uint64_t mixed) const { return mixed >> 32 & (slots_.size() - 1); }
  size_t find_slot(uint64_t pair, uint64_t mixed) const {
    size_t slot = first_slot(mixed);
    while (slots_[slot].key != pair && slots_[slot].key != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  std::vector<Slot> slots_;
  std::vector<uint64_t> filter_;  // four bits a slot
  uint32_t ranks_ = 0;
  bool rising_ = true;
  std::vector<bool> used_;  // as a part, by id
};

}  // namespace loam
