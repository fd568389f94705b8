// A hash table from pairs of token ids to numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace loam {

// Open addressing with steps of one; erase() moves back what stands behind, so no tombstones pile up.
class PairIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The number of a pair; kNone if it is not there.
  uint32_t find(int32_t left, int32_t right) const {
    if (slots_.empty()) return kNone;
    const uint64_t key = key_of(left, right);
    size_t at = home(key);
    while (slots_[at].number != kNone && slots_[at].key != key) at = next(at);
    return slots_[at].number;
  }

  // REQUIRES: the pair is not there; number != kNone.
  void insert(int32_t left, int32_t right, uint32_t number) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    place({key_of(left, right), number});
    ++size_;
  }

  // REQUIRES: the pair is there.
  void erase(int32_t left, int32_t right) {
    const uint64_t key = key_of(left, right);
    size_t hole = home(key);
    while (slots_[hole].key != key || slots_[hole].number == kNone) hole = next(hole);
    for (size_t at = next(hole); slots_[at].number != kNone; at = next(at)) {
      // Stays where it is if its home lies behind the hole.
      if (((at - home(slots_[at].key)) & (slots_.size() - 1)) < ((at - hole) & (slots_.size() - 1))) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole].number = kNone;
    --size_;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t number = kNone;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t home(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }
  size_t next(size_t at) const { return (at + 1) & (slots_.size() - 1); }
  void place(const Slot& slot) {
    size_t at = home(slot.key);
    while (slots_[at].number != kNone) at = next(at);
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 1024 : 2 * slots_.size());
    old.swap(slots_);
    shift_ = 64;
    for (size_t size = slots_.size(); size > 1; size /= 2) --shift_;
    for (const Slot& slot : old) {
      if (slot.number != kNone) place(slot);
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t size_ = 0;
  int shift_ = 64;  // leaves the bits of a slot's number
};

}  // namespace loam
