#include "loam/text/piece_choice.h"

#include <algorithm>

#include "loam/base/hash.h"

namespace loam {
namespace {

constexpr int64_t kLevels = 1 << 16;  // greater counts are taken for this one
constexpr int kBucketBits = 16;

int64_t level_of(int64_t count) { return std::min(count, kLevels); }
uint64_t bucket_of(std::string_view piece) { return hash64(piece) >> (64 - kBucketBits); }

void add(PieceAmount& amount, std::string_view piece, int64_t count) {
  const auto length = static_cast<int64_t>(piece.size());
  ++amount.pieces;
  amount.positions += length + 1;
  amount.occurrences += count;
  amount.longest = std::max(amount.longest, length);
}

void add(PieceAmount& amount, const PieceAmount& more) {
  amount.pieces += more.pieces;
  amount.positions += more.positions;
  amount.occurrences += more.occurrences;
  amount.longest = std::max(amount.longest, more.longest);
}

}  // namespace

PieceChoice::PieceChoice(const Visits& all, int64_t max_positions) {
  std::vector<PieceAmount> levels(kLevels + 1), buckets(size_t{1} << kBucketBits);
  all([&](std::string_view piece, int64_t count) { add(levels[level_of(count)], piece, count); });
  for (const PieceAmount& level : levels) add(all_, level);
  if (all_.positions <= max_positions) {
    chosen_ = all_;
    return;
  }
  for (level_ = kLevels; chosen_.positions + levels[level_].positions <= max_positions; --level_) {
    add(chosen_, levels[level_]);
  }
  all([&](std::string_view piece, int64_t count) {
    if (level_of(count) == level_) add(buckets[bucket_of(piece)], piece, count);
  });
  for (bucket_ = 0; chosen_.positions + buckets[bucket_].positions <= max_positions; ++bucket_) {
    add(chosen_, buckets[bucket_]);
  }
}

bool PieceChoice::takes(std::string_view piece, int64_t count) const {
  const int64_t level = level_of(count);
  return level > level_ || (level == level_ && bucket_of(piece) < bucket_);
}

}  // namespace loam
