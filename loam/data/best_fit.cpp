// Legend: T tokens a row.
#include "loam/data/best_fit.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "loam/base/error.h"

namespace loam {
namespace {

constexpr size_t kBucketPieces = 1 << 20;
constexpr int64_t kBucketTokens = int64_t{1} << 31;
constexpr uint32_t kNone = ~uint32_t{0};

// A set of numbers below `size`, by words of bits; each level says which words of the one below are not zero.
class NumberSet {
 public:
  explicit NumberSet(size_t size) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size);
    } while (size > 1);
  }

  void insert(size_t number) {
    for (auto& level : levels_) {
      level[number / 64] |= uint64_t{1} << number % 64;
      number /= 64;
    }
  }

  void erase(size_t number) {
    for (auto& level : levels_) {
      level[number / 64] &= ~(uint64_t{1} << number % 64);
      if (level[number / 64] != 0) return;
      number /= 64;
    }
  }

  // The least one that is no less than `number`, or kNone.
  size_t lower_bound(size_t number) const {
    for (size_t l = 0; l < levels_.size(); ++l) {
      const size_t word = number / 64;
      if (word < levels_[l].size()) {
        const uint64_t rest = levels_[l][word] & (~uint64_t{0} << number % 64);
        if (rest != 0) return descend(l, word * 64 + static_cast<size_t>(std::countr_zero(rest)));
      }
      number = word + 1;
    }
    return kNone;
  }

 private:
  size_t descend(size_t l, size_t number) const {
    while (l-- > 0) number = number * 64 + static_cast<size_t>(std::countr_zero(levels_[l][number]));
    return number;
  }
  std::vector<std::vector<uint64_t>> levels_;
};

// Indices by size, the largest first, equal ones in order.
std::vector<uint32_t> by_descending_size(std::span<const uint32_t> sizes, size_t row) {
  std::vector<uint32_t> begin(row + 2), order(sizes.size());
  for (const uint32_t size : sizes) ++begin[row - size + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  for (size_t i = 0; i < sizes.size(); ++i) order[begin[row - sizes[i]]++] = static_cast<uint32_t>(i);
  return order;
}

}  // namespace

std::vector<uint32_t> best_fit_decreasing(std::span<const uint32_t> sizes, int64_t row) {
  const auto T = static_cast<size_t>(row);
  std::vector<uint32_t> row_of(sizes.size());
  std::vector<uint32_t> last(T + 1, kNone);  // by room: the row that was filled last, before it `previous`
  std::vector<uint32_t> previous;
  NumberSet rooms(T + 1);
  for (const uint32_t item : by_descending_size(sizes, T)) {
    const size_t size = sizes[item];
    size_t room = rooms.lower_bound(size);
    uint32_t target = 0;
    if (room == kNone) {
      target = static_cast<uint32_t>(previous.size());
      previous.push_back(kNone);
      room = T;
    } else {
      target = last[room];
      last[room] = previous[target];
      if (last[room] == kNone) rooms.erase(room);
    }
    row_of[item] = target;
    const size_t left = room - size;
    if (left == 0) continue;
    if (last[left] == kNone) rooms.insert(left);
    previous[target] = last[left];
    last[left] = target;
  }
  return row_of;
}

BestFitPlan::BestFitPlan(const TokenSet& set, int64_t length) : set_(set), length_(length) {
  LOAM_CHECK(length > 0 && length < int64_t{1} << 30, "best-fit packing: rows of {} tokens", length);
  std::vector<uint32_t> begins, sizes;
  int64_t bucket_begin = 0, end = 0;
  for (int64_t document = 0; document < set.info().documents; ++document) {
    int64_t begin = end;
    end = set.document_begin(document + 1);
    if (end <= begin) fail(ErrorCode::kIo, "best-fit packing: the token set has changed while in use");
    for (; begin < end; begin += length) {
      if (begins.size() == kBucketPieces || begin - bucket_begin >= kBucketTokens) {
        close_bucket(bucket_begin, begins, sizes);
        begins.clear();
        sizes.clear();
        bucket_begin = begin;
      }
      begins.push_back(static_cast<uint32_t>(begin - bucket_begin));
      sizes.push_back(static_cast<uint32_t>(std::min(length, end - begin)));
    }
  }
  if (!begins.empty()) close_bucket(bucket_begin, begins, sizes);
}

void BestFitPlan::close_bucket(int64_t token_begin, std::span<const uint32_t> begins, std::span<const uint32_t> sizes) {
  const std::vector<uint32_t> row_of = best_fit_decreasing(sizes, length_);
  const size_t rows = 1 + *std::max_element(row_of.begin(), row_of.end());
  buckets_.push_back({static_cast<int64_t>(row_begins_.size()), static_cast<int64_t>(pieces_.size()), token_begin});

  std::vector<uint32_t> next(rows + 1);
  for (const uint32_t row : row_of) ++next[row + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  row_begins_.insert(row_begins_.end(), next.begin(), next.end() - 1);
  const size_t first = pieces_.size();
  pieces_.resize(first + begins.size());
  for (const uint32_t item : by_descending_size(sizes, static_cast<size_t>(length_))) {
    pieces_[first + next[row_of[item]]++] = begins[item];
  }
}

std::vector<BestFitPlan::Piece> BestFitPlan::row(int64_t index) const {
  LOAM_CHECK(index >= 0 && index < rows(), "best-fit packing: row {} of {}", index, rows());
  const auto after = std::upper_bound(buckets_.begin(), buckets_.end(), index,
                                      [](int64_t row, const Bucket& bucket) { return row < bucket.first_row; });
  const Bucket& bucket = *(after - 1);
  const auto piece_at = [&](int64_t row) { return bucket.first_piece + row_begins_[static_cast<size_t>(row)]; };
  const int64_t rows_end = after == buckets_.end() ? rows() : after->first_row;
  const int64_t pieces_end = after == buckets_.end() ? static_cast<int64_t>(pieces_.size()) : after->first_piece;
  std::vector<Piece> pieces;
  for (int64_t i = piece_at(index), end = index + 1 < rows_end ? piece_at(index + 1) : pieces_end; i < end; ++i) {
    const int64_t begin = bucket.token_begin + pieces_[static_cast<size_t>(i)];
    const int64_t document_end = set_.document_begin(set_.document_of(begin) + 1);
    const int64_t end_of_piece = std::min(begin + length_, document_end);
    pieces.push_back({begin, end_of_piece - begin, end_of_piece == document_end});
  }
  return pieces;
}

}  // namespace loam
