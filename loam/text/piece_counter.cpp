#include "loam/text/piece_counter.h"

#include "loam/base/hash.h"

namespace loam {

void PieceCounter::add(std::string_view piece, int64_t count) { add_hashed(piece, hash64(piece), count); }

void PieceCounter::add_all(const PieceCounter& other) {
  for (const Entry& entry : other.entries_) add_hashed(other.text(entry), entry.hash, entry.count);
}

void PieceCounter::add_hashed(std::string_view piece, uint64_t hash, int64_t count) {
  if (2 * entries_.size() >= slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] < 0) {
      slots_[slot] = size();
      entries_.push_back({hash, total_bytes(), static_cast<int64_t>(piece.size()), count});
      bytes_.append(piece);
      return;
    }
    Entry& entry = entries_[slots_[slot]];
    if (entry.hash == hash && text(entry) == piece) {
      entry.count += count;
      return;
    }
  }
}

void PieceCounter::grow() {
  slots_.assign(slots_.empty() ? 1024 : 2 * slots_.size(), -1);
  const size_t mask = slots_.size() - 1;
  for (int64_t i = 0; i < size(); ++i) {
    size_t slot = entries_[i].hash & mask;
    while (slots_[slot] >= 0) slot = (slot + 1) & mask;
    slots_[slot] = i;
  }
}

}  // namespace loam
