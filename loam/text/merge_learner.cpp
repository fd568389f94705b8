#include "loam/text/merge_learner.h"

#include <algorithm>
#include <limits>

#include "loam/base/error.h"
#include "loam/text/piece_counter.h"

namespace loam {
namespace {

constexpr int32_t kGap = -1;     // between pieces
constexpr int32_t kInside = -2;  // within a symbol, neither its first nor its last position

}  // namespace

MergeLearner::MergeLearner(MergeLimits limits)
    : min_frequency_(std::max<int64_t>(limits.min_frequency, 1)),
      max_token_length_(limits.max_token_length > 0 ? limits.max_token_length : std::numeric_limits<int64_t>::max()) {
  for (int byte = 0; byte < 256; ++byte) add_token(std::string(1, static_cast<char>(byte)));
  symbols_.push_back(kGap);
  piece_of_.push_back(0);
}

void MergeLearner::reserve(int64_t pieces, int64_t positions) {
  symbols_.reserve(positions + 1);
  piece_of_.reserve(positions + 1);
  weights_.reserve(pieces);
}

void MergeLearner::add(std::string_view piece, int64_t count) {
  LOAM_DCHECK(!started_, "MergeLearner: a piece comes after next()");
  const auto number = static_cast<uint32_t>(weights_.size());
  for (const char c : piece) symbols_.push_back(static_cast<unsigned char>(c));
  symbols_.push_back(kGap);
  piece_of_.resize(symbols_.size(), number);
  weights_.push_back(count);
}

// Counts the pairs of bytes. How many places each has is counted first, so that none of their lists is moved.
void MergeLearner::start() {
  started_ = true;
  constexpr size_t kBytes = 256;
  std::vector<uint32_t> numbers(kBytes * kBytes, 0);
  const auto each_pair = [&](const auto& visit) {
    for (size_t at = 1; at + 1 < symbols_.size(); ++at) {
      const int32_t left = symbols_[at], right = symbols_[at + 1];
      if (left >= 0 && right >= 0) visit(left * kBytes + right, at);
    }
  };
  each_pair([&](size_t pair, size_t) { ++numbers[pair]; });
  if (max_token_length_ < 2) return;
  for (size_t pair = 0; pair < numbers.size(); ++pair) {
    if (numbers[pair] == 0) continue;
    const uint32_t number = new_pair(static_cast<int32_t>(pair / kBytes), static_cast<int32_t>(pair % kBytes));
    pairs_[number].places.reserve(numbers[pair]);
    numbers[pair] = number;
  }
  each_pair([&](size_t pair, size_t at) {
    Pair& found = pairs_[numbers[pair]];
    found.count += weights_[piece_of_[at]];
    found.places.push_back(static_cast<uint32_t>(at));
  });
  for (const uint32_t pair : new_pairs_) push(pair);
}

std::optional<Merge> MergeLearner::next() {
  if (!started_) start();
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
  made_ = static_cast<int32_t>(tokens_.size());
  add_token(tokens_[left] + tokens_[right]);
  new_pairs_.clear();
  for (const uint32_t place : places) {
    if (symbols_[place] == left && symbols_[place + length(left)] == right) merge_at(place, left, right, made_);
  }
  forget(pair);
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

uint32_t MergeLearner::new_pair(int32_t left, int32_t right) {
  uint32_t number = static_cast<uint32_t>(pairs_.size());
  if (free_pairs_.empty()) {
    pairs_.push_back({left, right, 0, {}});
  } else {
    number = free_pairs_.back();
    free_pairs_.pop_back();
    pairs_[number] = {left, right, 0, {}};
  }
  index_.insert(left, right, number);
  new_pairs_.push_back(number);
  return number;
}

void MergeLearner::add_place(int32_t left, int32_t right, int64_t weight, uint32_t place) {
  if (!is_wanted(left, right)) return;
  uint32_t number = index_.find(left, right);
  if (number == PairIndex::kNone) number = new_pair(left, right);
  pairs_[number].count += weight;
  pairs_[number].places.push_back(place);
}

void MergeLearner::remove(int32_t left, int32_t right, int64_t weight) {
  const uint32_t number = index_.find(left, right);
  if (number == PairIndex::kNone) return;
  Pair& pair = pairs_[number];
  pair.count -= weight;
  // A pair of the token that is being made may be seen again, later in this merge.
  if (pair.count < min_frequency_ && left != made_ && right != made_) std::vector<uint32_t>().swap(pair.places);
}

// The pair is not in the heap.
void MergeLearner::forget(uint32_t number) {
  Pair& pair = pairs_[number];
  index_.erase(pair.left, pair.right);
  std::vector<uint32_t>().swap(pair.places);
  free_pairs_.push_back(number);
}

void MergeLearner::push(uint32_t pair) {
  if (pairs_[pair].count < min_frequency_) return forget(pair);
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
  token_front_.push_back(front_of(bytes));
  lengths_.push_back(static_cast<int32_t>(bytes.size()));
  tokens_.push_back(std::move(bytes));
}

}  // namespace loam
