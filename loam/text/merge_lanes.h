// Merging of several short pieces side by side.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "loam/text/merger.h"
#include "loam/text/piece_cache.h"

namespace loam {

// What Merger does, for pieces of at most kMaxKeyBytes. A large table of merges comes from memory slowly, so while one
// piece waits for its pairs, the others merge theirs. Not thread-safe: one a thread.
class MergeLanes {
 public:
  explicit MergeLanes(const MergeTable& table) : table_(table) {}

  // Appends the symbols of all pieces to `symbols`, and to `ends` where those of each end.
  void merge(std::span<const std::string_view> pieces, const BytePairs& known, std::vector<int32_t>& symbols,
             std::vector<size_t>& ends);

 private:
  static constexpr size_t kLanes = 16;
  struct Lane {
    size_t count;  // of symbols
    std::array<int32_t, kMaxKeyBytes> symbols;
    std::array<MergeTable::Result, kMaxKeyBytes> pairs;  // of each symbol and its next
    size_t joined;                                       // the symbol that was made last; its pairs are on their way
    MergeTable::Place before, after;
  };

  static void start(Lane& lane, std::string_view piece, const BytePairs& known);
  bool step(Lane& lane) const;

  const MergeTable& table_;
  std::array<Lane, kLanes> lanes_;
};

}  // namespace loam
