// Merging the symbols of one piece: lowest rank first, leftmost of equals, until no pair merges.
#pragma once

#include <cstdint>
#include <vector>

#include "loam/text/merge_table.h"

namespace loam {

// Scratch memory for merging, kept from piece to piece. Not thread-safe: one a thread.
class Merger {
 public:
  explicit Merger(const MergeTable& table) : table_(table) {}

  // Replaces `symbols` by what is left. Short pieces: a scan per merge. Long ones: a list in place and, for each rank,
  // a queue of places, so that the time is linear in text but for a logarithm. Error{kInvalidArgument} for more than
  // 2^31 symbols.
  void merge(std::vector<int32_t>& symbols);

 private:
  // One for each symbol at the start. A symbol that has grown stands at the first node of its span.
  struct Node {
    int32_t symbol;
    uint32_t span;  // in nodes; the same at the first and at the last node, so both neighbours are found from it
    uint32_t rank;  // of this symbol and the next
  };
  // The places of one rank: mostly in rising order, so that a plain queue serves; the others wait in a heap.
  struct Queue {
    std::vector<uint32_t> rising;
    size_t begin = 0;
    std::vector<uint32_t> late;  // min-heap
    bool listed = false;         // in ranks_

    bool empty() const { return begin == rising.size() && late.empty(); }
    void push(uint32_t place) {
      if (rising.empty() || place > rising.back()) {
        rising.push_back(place);
      } else {
        push_late(place);
      }
    }
    uint32_t pop() { return late.empty() ? rising[begin++] : pop_late(); }
    void push_late(uint32_t place);
    uint32_t pop_late();
  };

  void merge_short(std::vector<int32_t>& symbols);
  void merge_long(std::vector<int32_t>& symbols);
  // Long pieces mostly repeat themselves, so the last answer is kept.
  MergeTable::Result find(int32_t left, int32_t right) {
    if (left != last_left_ || right != last_right_) {
      last_left_ = left;
      last_right_ = right;
      last_found_ = table_.find(left, right);
    }
    return last_found_;
  }
  void join(uint32_t place);
  void refresh(uint32_t place);
  void refresh_joined();
  Queue& queue_of(uint32_t rank) {
    const int32_t index = queue_of_rank_[rank];
    return index >= 0 ? queues_[index] : new_queue(rank);
  }
  Queue& new_queue(uint32_t rank);
  void list(uint32_t rank);

  const MergeTable& table_;
  int32_t last_left_ = -1, last_right_ = -1;  // of find(); no token has the id -1
  MergeTable::Result last_found_{kNoRank, -1};
  std::vector<Node> nodes_;
  std::vector<int32_t> queue_of_rank_;  // -1: none yet; made on the first long piece
  std::vector<Queue> queues_;
  std::vector<uint32_t> queue_ranks_;  // of queues_ in use
  std::vector<uint32_t> ranks_;        // min-heap of the ranks that have places
  std::vector<uint32_t> joined_;       // places of the current sweep, ascending
};

}  // namespace loam
