#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/text/merge_lanes.cpp"

#include "loam/text/merge_lanes.h"

#include <algorithm>
#include <bit>
#include <cstring>

// Every instruction set's pass over the rest of this file.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Lane = MergeLanes::Lane;
using Symbols = hn::CappedTag<int32_t, Lane::kSymbols>;

// values[i] = values[i + 1] for i > place.
HWY_INLINE void close_gap(int32_t* values, size_t place) {
  const Symbols d;
  const auto after = hn::Set(d, static_cast<int32_t>(place));
  for (size_t i = 1; i <= Lane::kSymbols; i += hn::Lanes(d)) {
    const auto moves = hn::Gt(hn::Iota(d, static_cast<int32_t>(i)), after);
    hn::StoreU(hn::IfThenElse(moves, hn::LoadU(d, values + i + 1), hn::LoadU(d, values + i)), d, values + i);
  }
}

// Takes the pairs that were on their way and merges the best; false if no pair merges.
HWY_INLINE bool step(Lane& lane, const MergeTable& table) {
  const Symbols d;
  const size_t width = hn::Lanes(d);
  int32_t* merges = lane.merges.data();
  merges[lane.joined - 1] = table.find_index(lane.before);
  merges[lane.joined] = table.find_index(lane.after);
  auto least = hn::LoadU(d, merges + 1);
  for (size_t i = width; i < Lane::kSymbols; i += width) least = hn::Min(least, hn::LoadU(d, merges + 1 + i));
  least = hn::MinOfLanes(d, least);
  const int32_t first = hn::GetLane(least);
  if (first == kNoMerge) return false;
  uint64_t places = 0;
  for (size_t i = 0; i < Lane::kSymbols; i += width) {
    uint64_t bits = 0;
    uint8_t stored[8] = {};
    hn::StoreMaskBits(d, hn::Eq(hn::LoadU(d, merges + 1 + i), least), stored);
    std::memcpy(&bits, stored, sizeof(bits));
    places |= bits << i;
  }
  const size_t best = 1 + static_cast<size_t>(std::countr_zero(places));
  close_gap(lane.symbols.data(), best);
  close_gap(merges, best);
  int32_t* made = &lane.symbols[best];
  *made = table.id(first);
  lane.before = table.prefetch(made[-1], made[0]);
  lane.after = table.prefetch(made[0], made[1]);
  lane.joined = best;
  --lane.count;
  return true;
}

void merge_all(Lane* lanes, size_t count, const MergeTable& table) {
  std::array<Lane*, MergeLanes::kLanes> active;
  for (size_t i = 0; i < count; ++i) active[i] = &lanes[i];
  while (count > 0) {
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      active[kept] = active[i];
      kept += step(*active[i], table);
    }
    count = kept;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace {

HWY_EXPORT(merge_all);

void start(MergeLanes::Lane& lane, std::string_view piece, const BytePairs& known, const MergeTable& table) {
  lane.symbols.fill(kNoToken);
  lane.merges.fill(kNoMerge);
  lane.count = piece.size();
  for (size_t i = 0; i < piece.size(); ++i) lane.symbols[1 + i] = known.ids[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i + 1 < piece.size(); ++i) lane.merges[1 + i] = known.find(piece[i], piece[i + 1]);
  lane.joined = MergeLanes::Lane::kNowhere;
  lane.before = lane.after = table.prefetch(kNoToken, kNoToken);
}

}  // namespace

void MergeLanes::merge(std::span<const std::string_view> pieces, const BytePairs& known, std::vector<int32_t>& symbols,
                       std::vector<size_t>& ends) {
  for (size_t from = 0; from < pieces.size(); from += kLanes) {
    const size_t lanes = std::min(kLanes, pieces.size() - from);
    for (size_t i = 0; i < lanes; ++i) start(lanes_[i], pieces[from + i], known, table_);
    HWY_DYNAMIC_DISPATCH(merge_all)(lanes_.data(), lanes, table_);
    for (const Lane& lane : std::span(lanes_).first(lanes)) {
      const auto first = lane.symbols.begin() + 1;
      symbols.insert(symbols.end(), first, first + static_cast<int64_t>(lane.count));
      ends.push_back(symbols.size());
    }
  }
}

}  // namespace loam
#endif
