// Where a piece can be cut because no merge joins what stands on the two sides.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "loam/text/neighbour_set.h"

namespace loam {

// Byte-pair encoding joins two symbols only by a merge of theirs. So where no merge has a left part that the text
// before a place ends with and a right part that the text from there on begins with, the place stays a border between
// symbols, and the two sides can be encoded each for itself. Two bytes settle that for ASCII; elsewhere the characters
// on both sides are compared with those that some merge has there: Chinese, which has no spaces, falls apart into
// characters and short words. Thread safety: const members may be called from any thread.
class MergeCuts {
 public:
  using Sides = std::pair<std::string_view, std::string_view>;  // the left and the right part of a merge

  MergeCuts() : MergeCuts(std::vector<Sides>()) {}
  // No part is empty.
  explicit MergeCuts(const std::vector<Sides>& merges);

  // True only where no merge joins text[0, at) and what begins at `at`; 0 < at < text.size().
  bool is_cut(std::string_view text, size_t at) const;
  // The first cut behind `from` that stands before a character; the end of the text if there is none.
  size_t next_cut(std::string_view text, size_t from) const;

 private:
  size_t slot(uint32_t left, uint32_t right) const;

  NeighbourSet bytes_;            // last byte and first byte, of all merges
  NeighbourSet partial_;          // of merges that have only a part of one of the two characters
  std::vector<bool> characters_;  // by slot; of the others
  int bits_ = 10;
};

}  // namespace loam
