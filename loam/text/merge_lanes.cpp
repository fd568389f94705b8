#include "loam/text/merge_lanes.h"

#include <algorithm>

namespace loam {

void MergeLanes::merge(std::span<const std::string_view> pieces, const BytePairs& known, std::vector<int32_t>& symbols,
                       std::vector<size_t>& ends) {
  for (size_t from = 0; from < pieces.size(); from += kLanes) {
    const size_t lanes = std::min(kLanes, pieces.size() - from);
    std::array<Lane*, kLanes> active;
    for (size_t i = 0; i < lanes; ++i) {
      start(lanes_[i], pieces[from + i], known);
      active[i] = &lanes_[i];
    }
    for (size_t left = lanes; left > 0;) {
      size_t kept = 0;
      for (size_t i = 0; i < left; ++i) {
        active[kept] = active[i];
        kept += step(*active[i]);
      }
      left = kept;
    }
    for (size_t i = 0; i < lanes; ++i) {
      symbols.insert(symbols.end(), lanes_[i].symbols.begin(), lanes_[i].symbols.begin() + lanes_[i].count);
      ends.push_back(symbols.size());
    }
  }
}

void MergeLanes::start(Lane& lane, std::string_view piece, const BytePairs& known) {
  lane.count = piece.size();
  for (size_t i = 0; i < piece.size(); ++i) lane.symbols[i] = known.ids[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i + 1 < piece.size(); ++i) lane.pairs[i] = known.find(piece[i], piece[i + 1]);
  lane.joined = piece.size();
}

// Takes the pairs that were on their way and merges the best; false if no pair merges.
bool MergeLanes::step(Lane& lane) const {
  auto& [count, symbols, pairs, joined, before, after] = lane;
  if (joined < count) {
    if (joined > 0) pairs[joined - 1] = table_.find(before);
    if (joined + 1 < count) pairs[joined] = table_.find(after);
  }
  if (count < 2) return false;
  size_t best = 0;
  for (size_t i = 1; i + 1 < count; ++i) best = pairs[i].rank < pairs[best].rank ? i : best;
  if (pairs[best].rank == kNoRank) return false;
  symbols[best] = pairs[best].id;
  --count;
  for (size_t i = best + 1; i < count; ++i) {
    symbols[i] = symbols[i + 1];
    pairs[i] = pairs[i + 1];  // the last one is not used
  }
  joined = best;
  if (best > 0) before = table_.prefetch(symbols[best - 1], symbols[best]);
  if (best + 1 < count) after = table_.prefetch(symbols[best], symbols[best + 1]);
  return true;
}

}  // namespace loam
