#include "loam/text/merger.h"

#include <algorithm>
#include <functional>

#include "loam/base/error.h"

namespace loam {
namespace {

constexpr size_t kShort = 48;  // symbols; above, scanning for each merge loses
constexpr uint32_t kNowhere = UINT32_MAX;

}  // namespace

void Merger::merge(std::vector<int32_t>& symbols) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
}

void Merger::merge_short(std::vector<int32_t>& symbols) {
  MergeTable::Result pairs[kShort];  // of each symbol and its next
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = table_.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) break;
    symbols[best] = pairs[best].id;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];  // the last one is not used
    }
    if (best + 1 < count) pairs[best] = table_.find(symbols[best], symbols[best + 1]);
    if (best > 0) pairs[best - 1] = table_.find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

void Merger::merge_long(std::vector<int32_t>& symbols) {
  LOAM_CHECK(symbols.size() < size_t{1} << 31, "tokenizer: a piece of {} bytes is more than 2^31", symbols.size());
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  if (queue_of_rank_.empty()) queue_of_rank_.assign(table_.ranks(), -1);
  nodes_.clear();
  nodes_.reserve(count);
  for (const int32_t symbol : symbols) nodes_.push_back({symbol, 1, kNoRank});
  for (uint32_t i = 0; i < count; ++i) refresh(i);
  while (!ranks_.empty()) {
    const uint32_t rank = ranks_.front();
    Queue& queue = queue_of(rank);
    if (queue.empty()) {
      std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
      ranks_.pop_back();
      queue.listed = false;
      continue;
    }
    do {
      const uint32_t place = queue.pop();
      if (nodes_[place].rank == rank) join(place);
    } while (table_.rising() && !queue.empty());
    refresh_joined();
  }
  symbols.clear();
  for (uint32_t i = 0; i < count; i += nodes_[i].span) symbols.push_back(nodes_[i].symbol);
  for (size_t i = 0; i < queue_ranks_.size(); ++i) {
    queue_of_rank_[queue_ranks_[i]] = -1;
    queues_[i].rising.clear();
    queues_[i].begin = 0;
  }
  queue_ranks_.clear();
}

// Merges the symbol at `place` with the next. The pairs on both sides of the new symbol wait for refresh_joined().
void Merger::join(uint32_t place) {
  Node& node = nodes_[place];
  Node& gone = nodes_[place + node.span];
  node.symbol = find(node.symbol, gone.symbol).id;
  node.span += gone.span;
  node.rank = gone.rank = kNoRank;
  nodes_[place + node.span - 1].span = node.span;
  if (place > 0) nodes_[place - nodes_[place - 1].span].rank = kNoRank;
  joined_.push_back(place);
}

void Merger::refresh_joined() {
  uint32_t before = kNowhere;
  for (const uint32_t place : joined_) {
    const uint32_t previous = place > 0 ? place - nodes_[place - 1].span : kNowhere;
    if (previous != before) refresh(previous);
    refresh(place);
    before = place;
  }
  joined_.clear();
}

// Looks up the pair at `place` and queues it.
void Merger::refresh(uint32_t place) {
  Node& node = nodes_[place];
  node.rank = kNoRank;
  if (place + node.span == nodes_.size()) return;
  const MergeTable::Result pair = find(node.symbol, nodes_[place + node.span].symbol);
  if (pair.rank == kNoRank) return;
  node.rank = pair.rank;
  Queue& queue = queue_of(pair.rank);
  queue.push(place);
  if (!queue.listed) {
    queue.listed = true;
    list(pair.rank);
  }
}

// Puts a rank that has places again on the heap.
void Merger::list(uint32_t rank) {
  ranks_.push_back(rank);
  std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
}

Merger::Queue& Merger::new_queue(uint32_t rank) {
  queue_of_rank_[rank] = static_cast<int32_t>(queue_ranks_.size());
  queue_ranks_.push_back(rank);
  if (queues_.size() < queue_ranks_.size()) queues_.emplace_back();
  return queues_[queue_ranks_.size() - 1];
}

void Merger::Queue::push_late(uint32_t place) {
  late.push_back(place);
  std::push_heap(late.begin(), late.end(), std::greater<>());
}

uint32_t Merger::Queue::pop_late() {
  if (begin < rising.size() && rising[begin] < late.front()) return rising[begin++];
  std::pop_heap(late.begin(), late.end(), std::greater<>());
  const uint32_t place = late.back();
  late.pop_back();
  return place;
}

}  // namespace loam
