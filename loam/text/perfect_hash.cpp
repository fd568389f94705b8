#include "loam/text/perfect_hash.h"

#include <algorithm>
#include <numeric>

namespace loam {
namespace {

constexpr size_t kInBucket = 4;
constexpr size_t kMostInBucket = 32;  // more are not there by chance
constexpr size_t kTriesForEach = 256;
constexpr uint32_t kPilots = 1 << 16;

}  // namespace

PerfectHash::PerfectHash(std::span<const uint64_t> hashes)
    : pilots_(hashes.size() / kInBucket + 1), slots_(hashes.size() + hashes.size() / 8 + 1) {
  std::vector<std::vector<uint32_t>> buckets(pilots_.size());
  for (size_t i = 0; i < hashes.size(); ++i) buckets[bucket(hashes[i])].push_back(static_cast<uint32_t>(i));
  std::vector<uint32_t> order(buckets.size());
  std::iota(order.begin(), order.end(), 0);
  // Large buckets first, while most slots are free.
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return buckets[a].size() > buckets[b].size(); });
  std::vector<bool> taken(slots_, false);
  std::vector<size_t> places;
  const auto fits = [&](const std::vector<uint32_t>& keys, uint16_t pilot) {
    places.clear();
    for (const uint32_t key : keys) {
      const size_t place = slot(hashes[key], pilot);
      if (taken[place] || std::find(places.begin(), places.end(), place) != places.end()) return false;
      places.push_back(place);
    }
    return true;
  };
  size_t tries = kTriesForEach * hashes.size() + kPilots;  // a hostile set of keys ends in misfits, not in a long wait
  for (const uint32_t index : order) {
    std::vector<uint32_t>& keys = buckets[index];
    for (size_t i = keys.size(); i-- > 0;) {
      const auto equal = [&](uint32_t other) { return hashes[other] == hashes[keys[i]]; };
      const auto before = keys.begin() + static_cast<int64_t>(i);
      if (i < kMostInBucket && std::none_of(keys.begin(), before, equal)) continue;
      misfits_.push_back(keys[i]);
      keys.erase(before);
    }
    uint32_t pilot = 0;
    while (pilot < kPilots && tries > 0 && !fits(keys, static_cast<uint16_t>(pilot))) {
      ++pilot;
      --tries;
    }
    if (pilot == kPilots || tries == 0) {
      misfits_.insert(misfits_.end(), keys.begin(), keys.end());
      continue;
    }
    pilots_[index] = static_cast<uint16_t>(pilot);
    for (const size_t place : places) taken[place] = true;
  }
}

}  // namespace loam
