#include "loam/text/piece_counter.h"

#include <algorithm>
#include <array>
#include <limits>
#include <new>

#include "loam/base/error.h"
#include "loam/base/hash.h"

namespace loam {
namespace {

constexpr size_t kAhead = 64;  // pieces whose memory is fetched while others are counted
constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();

uint32_t hash_of(std::string_view piece) { return static_cast<uint32_t>(hash64(piece)); }

}  // namespace

uint64_t front_of(std::string_view piece) {
  uint64_t front = 0;
  for (size_t i = 0; i < 8; ++i) front = front << 8 | (i < piece.size() ? static_cast<unsigned char>(piece[i]) : 0);
  return front;
}

void PieceCounter::add(std::string_view piece, int64_t count) {
  make_room(1);
  add_hashed(piece, hash_of(piece), count);
}

void PieceCounter::add_pieces(std::string_view text, std::span<const Piece> pieces, int64_t count) {
  std::array<uint32_t, kAhead> hashes;
  for (; !pieces.empty(); pieces = pieces.subspan(std::min(pieces.size(), kAhead))) {
    const size_t some = std::min(pieces.size(), kAhead);
    make_room(some);
    const size_t mask = slots_.size() - 1;
    for (size_t i = 0; i < some; ++i) {
      hashes[i] = hash_of(text.substr(pieces[i].begin, pieces[i].length));
      __builtin_prefetch(&slots_[hashes[i] & mask]);
    }
    for (size_t i = 0; i < some; ++i) __builtin_prefetch(byte_at(slots_[hashes[i] & mask].record), 1);
    for (size_t i = 0; i < some; ++i) add_hashed(text.substr(pieces[i].begin, pieces[i].length), hashes[i], count);
  }
}

void PieceCounter::add_all(const PieceCounter& other) {
  other.for_each([this](std::string_view piece, int64_t count) { add(piece, count); });
}

std::vector<uint32_t> PieceCounter::sorted() const {
  struct Key {
    uint64_t front;
    uint32_t record;
  };
  std::vector<Key> keys;
  keys.reserve(static_cast<size_t>(size_));
  for (size_t at = 1; at < used_; at += record_units(length(at))) {
    keys.push_back({front_of(text(at)), static_cast<uint32_t>(at)});
  }
  std::sort(keys.begin(), keys.end(), [this](const Key& a, const Key& b) {
    return a.front != b.front ? a.front < b.front : text(a.record) < text(b.record);
  });
  std::vector<uint32_t> records;
  records.reserve(keys.size());
  for (const Key& key : keys) records.push_back(key.record);
  return records;
}

void PieceCounter::add_hashed(std::string_view piece, uint32_t hash, int64_t count) {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    Slot& slot = slots_[at];
    if (slot.record == 0) {
      slot = {hash, append(piece, count)};
      return;
    }
    if (slot.hash == hash && text(slot.record) == piece) {
      *reinterpret_cast<int64_t*>(bytes_.get() + slot.record * kUnit) += count;
      return;
    }
  }
}

// Keeps the table half empty with so many more.
void PieceCounter::make_room(size_t pieces) {
  if (2 * (static_cast<size_t>(size_) + pieces) <= slots_.size()) return;
  std::vector<Slot> old(std::max<size_t>(1024, 2 * slots_.size()));
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.record == 0) continue;
    size_t at = slot.hash & mask;
    while (slots_[at].record != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

uint32_t PieceCounter::append(std::string_view piece, int64_t count) {
  const size_t needed = record_units(piece.size());
  LOAM_CHECK(piece.size() < kMost && used_ + needed < kMost,
             "tokenizer training: the distinct pieces have more than 32 GiB, or one of them 4 GiB; train on a sample");
  if (used_ + needed > capacity_) {
    const size_t capacity = std::max(used_ + needed, std::max<size_t>(4096, 2 * capacity_));
    char* grown = static_cast<char*>(std::realloc(bytes_.get(), capacity * kUnit));
    if (!grown) throw std::bad_alloc();
    static_cast<void>(bytes_.release());
    bytes_.reset(grown);
    capacity_ = capacity;
  }
  char* record = bytes_.get() + used_ * kUnit;
  const auto length = static_cast<uint32_t>(piece.size());
  std::memcpy(record, &count, sizeof count);
  std::memcpy(record + 8, &length, sizeof length);
  std::memcpy(record + kHeader, piece.data(), piece.size());
  const auto at = static_cast<uint32_t>(used_);
  used_ += needed;
  ++size_;
  total_bytes_ += static_cast<int64_t>(length);
  return at;
}

}  // namespace loam
