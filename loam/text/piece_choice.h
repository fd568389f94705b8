// Which of the counted pieces a bounded memory holds: the most frequent ones.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "loam/text/piece_runs.h"

namespace loam {

struct PieceAmount {
  int64_t pieces = 0;       // distinct
  int64_t positions = 0;    // their bytes, and one for each
  int64_t occurrences = 0;  // of all of them
  int64_t longest = 0;      // bytes
};

// A pure function of the counted pieces and the capacity: all if they fit; otherwise the most frequent, and of the
// first frequency that does not fit whole those of the least hashes.
class PieceChoice {
 public:
  // Calls a visitor for each piece once; the order does not matter.
  using Visits = std::function<void(const PieceVisitor&)>;

  PieceChoice(const Visits& all, int64_t max_positions);
  bool takes(std::string_view piece, int64_t count) const;
  const PieceAmount& all() const { return all_; }
  const PieceAmount& chosen() const { return chosen_; }

 private:
  PieceAmount all_, chosen_;
  int64_t level_ = 0;                                       // a count above it is taken, one below it is not
  uint64_t bucket_ = std::numeric_limits<uint64_t>::max();  // and at it, one of a lesser bucket
};

}  // namespace loam
