// A table without collisions for keys that are all known at the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace loam {

// Gives each of a set of hashes a slot of its own, in little more slots than there are hashes, from one small table:
// the hashes fall into buckets of about four, and for each bucket a pilot is kept that sends all of it to free slots
// (hash and displace: Belazzougui, Botelho, Dietzfelbinger 2009). Any other hash gets some slot as well, so the one
// who asks compares the key that is kept there. Thread safety: const after construction.
class PerfectHash {
 public:
  PerfectHash() = default;
  // Hashes that are well mixed. REQUIRES: fewer than 2^31. Those without a slot of their own, because they are there
  // twice or by very bad luck, are listed by misfits(), as places in `hashes`.
  explicit PerfectHash(std::span<const uint64_t> hashes);

  size_t slots() const { return slots_; }
  size_t slot(uint64_t hash) const { return slot(hash, pilots_[bucket(hash)]); }  // REQUIRES: not empty
  const std::vector<size_t>& misfits() const { return misfits_; }

 private:
  static size_t in_range(uint64_t hash, size_t range) { return (hash >> 32) * range >> 32; }
  size_t bucket(uint64_t hash) const { return in_range(hash << 32, pilots_.size()); }
  size_t slot(uint64_t hash, uint16_t pilot) const {
    return in_range((hash ^ pilot * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u, slots_);
  }

  std::vector<uint16_t> pilots_;
  size_t slots_ = 0;
  std::vector<size_t> misfits_;
};

}  // namespace loam
