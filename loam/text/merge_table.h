// Which pairs of tokens merge, how early, and into what.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loam {

inline constexpr uint32_t kNoRank = UINT32_MAX;

// Open addressing, at most half full. Thread safety: const members may be called from any thread.
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
  }

  // False if the pair is there already. REQUIRES: ids >= 0, ranks that do not fall from call to call, and not more
  // pairs than the constructor was told.
  bool insert(int32_t left, int32_t right, Result result) {
    Slot& slot = slots_[find_slot(key(left, right))];
    if (slot.key != kEmpty) return false;
    slot = {key(left, right), result};
    ranks_ = result.rank + 1;
    const size_t ids = static_cast<size_t>(std::max({left, right, result.id})) + 1;
    if (used_.size() < ids) used_.resize(ids, false);
    if (used_[result.id]) rising_ = false;
    used_[left] = used_[right] = true;
    return true;
  }

  Result find(int32_t left, int32_t right) const { return slots_[find_slot(key(left, right))].result; }

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
  size_t find_slot(uint64_t pair) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = (pair * 0x9E3779B97F4A7C15u ^ pair >> 29) * 0xBF58476D1CE4E5B9u >> 32 & mask;
    while (slots_[slot].key != pair && slots_[slot].key != kEmpty) slot = (slot + 1) & mask;
    return slot;
  }

  std::vector<Slot> slots_;
  uint32_t ranks_ = 0;
  bool rising_ = true;
  std::vector<bool> used_;  // as a part, by id
};

}  // namespace loam
