// Merging of several short pieces side by side.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "loam/text/merge_table.h"
#include "loam/text/piece_cache.h"

namespace loam {

// The symbols of the bytes, and the merge of each two of them.
struct BytePairs {
  std::array<int32_t, 256> ids;
  std::vector<int32_t> merges;  // as MergeTable::find_index() gives them; [first byte][second byte]

  int32_t find(char first, char second) const {
    return merges[size_t{256} * static_cast<unsigned char>(first) + static_cast<unsigned char>(second)];
  }
};

// What Merger does where no two pairs have one rank, for pieces of at most kMaxKeyBytes. A merge is always the same few
// vector instructions, whatever the length of the piece and wherever the pair stands, so that no branch is guessed
// wrongly; and while one piece waits for its next pairs to come from memory, the others merge. Not thread-safe: one a
// thread.
class MergeLanes {
 public:
  explicit MergeLanes(const MergeTable& table) : table_(table) {}

  // Appends the symbols of all pieces to `symbols`, and to `ends` where those of each end.
  void merge(std::span<const std::string_view> pieces, const BytePairs& known, std::vector<int32_t>& symbols,
             std::vector<size_t>& ends);

  // A piece in work. Symbol 0 and those behind the last are kNoToken, which merges with nothing.
  struct Lane {
    static constexpr size_t kSymbols = 16;            // that a step looks at
    static constexpr size_t kNowhere = kSymbols + 2;  // for `joined`: two places that no step looks at

    std::array<int32_t, kNowhere + 2> symbols;
    std::array<int32_t, kNowhere + 2> merges;  // of each symbol and its next; lower ones first
    size_t count;                              // of symbols
    size_t joined;                             // the symbol that was made last; its pairs are on their way
    MergeTable::Place before, after;
  };

  static constexpr size_t kLanes = 16;

 private:
  const MergeTable& table_;
  std::array<Lane, kLanes> lanes_;
};

}  // namespace loam
