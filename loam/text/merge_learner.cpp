#include "loam/text/merge_learner.h"

#include <algorithm>
#include <limits>

#include "loam/base/error.h"

namespace loam {
namespace {

constexpr int32_t kGap = -1;     // between pieces
constexpr int32_t kInside = -2;  // within a symbol, neither its first nor its last position

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeLearner::MergeLearner(const PieceCounter& pieces, int64_t min_frequency)
    : min_frequency_(std::max<int64_t>(min_frequency, 1)) {
  const int64_t positions = pieces.total_bytes() + pieces.size() + 1;
  LOAM_CHECK(positions <= std::numeric_limits<uint32_t>::max(),
             "tokenizer training: the distinct pieces hold {} bytes, more than 2^32; train on a sample",
             pieces.total_bytes());
  for (int byte = 0; byte < 256; ++byte) add_token(std::string(1, static_cast<char>(byte)));
  symbols_.reserve(positions);
  piece_of_.reserve(positions);
  symbols_.push_back(kGap);
  piece_of_.push_back(0);
  for (const PieceCounter::Entry& entry : pieces.entries()) {
    for (const char c : pieces.text(entry)) {
      const int32_t byte = static_cast<unsigned char>(c), before = symbols_.back();
      if (before >= 0) add_place(before, byte, entry.count, static_cast<uint32_t>(symbols_.size() - 1));
      symbols_.push_back(byte);
      piece_of_.push_back(static_cast<uint32_t>(weights_.size()));
    }
    symbols_.push_back(kGap);
    piece_of_.push_back(static_cast<uint32_t>(weights_.size()));
    weights_.push_back(entry.count);
  }
  for (uint32_t pair = 0; pair < pairs_.size(); ++pair) push(pair);
}

std::optional<Merge> MergeLearner::next() {
  const auto order = [this](const Candidate& a, const Candidate& b) { return worse(a, b); };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), order);
    const Candidate best = heap_.back();
    heap_.pop_back();
    if (pairs_[best.pair].count == best.count) return merge(best.pair);
    push(best.pair);
  }
  return std::nullopt;
}

Merge MergeLearner::merge(uint32_t pair) {
  const int32_t left = pairs_[pair].left, right = pairs_[pair].right;
  const std::vector<uint32_t> places = std::move(pairs_[pair].places);
  const int32_t made = static_cast<int32_t>(tokens_.size());
  add_token(tokens_[left] + tokens_[right]);
  new_pairs_.clear();
  for (const uint32_t place : places) {
    if (symbols_[place] == left && symbols_[place + length(left)] == right) merge_at(place, left, right, made);
  }
  pairs_[pair].count = 0;
  for (const uint32_t made_pair : new_pairs_) push(made_pair);
  return {left, right};
}

void MergeLearner::merge_at(uint32_t place, int32_t left, int32_t right, int32_t made) {
  const int64_t weight = weights_[piece_of_[place]];
  const uint32_t middle = place + length(left), end = place + length(made);
  const int32_t before = symbols_[place - 1], after = symbols_[end];
  symbols_[middle - 1] = symbols_[middle] = kInside;
  symbols_[place] = symbols_[end - 1] = made;
  if (before >= 0) {
    remove(before, left, weight);
    add_place(before, made, weight, place - length(before));
  }
  if (after >= 0) {
    remove(right, after, weight);
    add_place(made, after, weight, place);
  }
}

uint32_t MergeLearner::pair_index(int32_t left, int32_t right) {
  const auto [slot, added] = index_of_pair_.try_emplace(pair_key(left, right), static_cast<uint32_t>(pairs_.size()));
  if (added) {
    pairs_.push_back({left, right, 0, {}});
    new_pairs_.push_back(slot->second);
  }
  return slot->second;
}

void MergeLearner::add_place(int32_t left, int32_t right, int64_t weight, uint32_t place) {
  Pair& pair = pairs_[pair_index(left, right)];
  pair.count += weight;
  pair.places.push_back(place);
}

void MergeLearner::remove(int32_t left, int32_t right, int64_t weight) {
  Pair& pair = pairs_[pair_index(left, right)];
  pair.count -= weight;
  if (pair.count == 0) std::vector<uint32_t>().swap(pair.places);
}

void MergeLearner::push(uint32_t pair) {
  if (pairs_[pair].count < min_frequency_) return;
  heap_.push_back({pairs_[pair].count, pair});
  std::push_heap(heap_.begin(), heap_.end(), [this](const Candidate& a, const Candidate& b) { return worse(a, b); });
}

bool MergeLearner::worse(const Candidate& a, const Candidate& b) const {
  if (a.count != b.count) return a.count < b.count;
  const Pair &p = pairs_[a.pair], &q = pairs_[b.pair];
  if (const int order = compare_bytes(p.left, q.left)) return order < 0;
  return compare_bytes(p.right, q.right) < 0;
}

int MergeLearner::compare_bytes(int32_t a, int32_t b) const {
  if (token_front_[a] != token_front_[b]) return token_front_[a] < token_front_[b] ? -1 : 1;
  return tokens_[a].compare(tokens_[b]);
}

void MergeLearner::add_token(std::string bytes) {
  uint64_t front = 0;
  for (size_t i = 0; i < 8; ++i) front = front << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0);
  token_front_.push_back(front);
  tokens_.push_back(std::move(bytes));
}

}  // namespace loam
