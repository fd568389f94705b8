// The ids of pieces seen before. Pieces of up to 16 bytes are compared as two machine words.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace loam {

inline constexpr size_t kMaxKeyBytes = 16;

// The bytes of a short piece, zeros behind them, and its length.
struct PieceKey {
  uint64_t low = 0, high = 0;
  uint32_t length = 0;

  // REQUIRES: length <= kMaxKeyBytes. Reads no byte outside `text`.
  static PieceKey of(std::string_view text, size_t position, size_t length) {
    PieceKey key;
    key.length = static_cast<uint32_t>(length);
    uint64_t words[2] = {0, 0};
    if (position + kMaxKeyBytes > text.size()) {
      std::memcpy(words, text.data() + position, length);
    } else {
      std::memcpy(words, text.data() + position, kMaxKeyBytes);
      if (length < 8) {
        words[0] &= (uint64_t{1} << 8 * length) - 1;
        words[1] = 0;
      } else if (length < 16) {
        words[1] &= (uint64_t{1} << 8 * (length - 8)) - 1;
      }
    }
    key.low = words[0];
    key.high = words[1];
    return key;
  }

  uint64_t hash() const {
    const uint64_t mixed =
        (low ^ uint64_t{length} << 56) * 0x9E3779B97F4A7C15u ^ std::rotl(high * 0xC2B2AE3D27D4EB4Fu, 31);
    return (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93u;
  }
  bool operator==(const PieceKey&) const = default;
};

// The pieces that are one token. Thread safety: const members may be called from any thread.
class WordTable {
 public:
  explicit WordTable(int64_t words) {
    while (int64_t{1} << bits_ < 2 * words + 1) ++bits_;
    slots_.resize(size_t{1} << bits_);
  }
  // REQUIRES: not more words than the constructor was told.
  void insert(const PieceKey& key, int32_t id) {
    size_t slot = first_slot(key);
    while (slots_[slot].id >= 0 && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = {key, id};
  }
  int32_t find(const PieceKey& key) const { return find_from(first_slot(key), key); }  // -1 if it is not there
  // The same in two steps, with other work between them while the table comes from memory.
  size_t first_slot(const PieceKey& key) const { return key.hash() >> (64 - bits_); }
  void prefetch(size_t slot) const { __builtin_prefetch(&slots_[slot]); }
  int32_t find_from(size_t slot, const PieceKey& key) const {
    while (slots_[slot].id >= 0 && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
    return slots_[slot].id;
  }

 private:
  struct Slot {
    PieceKey key;
    int32_t id = -1;
  };
  int bits_ = 4;
  std::vector<Slot> slots_;
};

// A few ids for each piece; a piece that falls on the slot of another replaces it.
class PieceCache {
 public:
  // Sized for a text of `bytes`: 4 KiB to 512 KiB.
  explicit PieceCache(size_t bytes) {
    while (bits_ < 13 && size_t{1} << (bits_ + 5) < bytes) ++bits_;
    slots_.resize(size_t{1} << bits_);
  }
  std::span<const int32_t> find(const PieceKey& key) const {  // empty if it is not there
    const Slot& slot = slots_[key.hash() >> (64 - bits_)];
    if (slot.key != key) return {};
    return {slot.ids.data(), slot.count};
  }
  void insert(const PieceKey& key, std::span<const int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    Slot& slot = slots_[key.hash() >> (64 - bits_)];
    slot.key = key;
    slot.count = static_cast<uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), slot.ids.begin());
  }

 private:
  static constexpr size_t kMaxIds = 9;
  struct alignas(64) Slot {
    PieceKey key;  // length 0: unused
    uint32_t count = 0;
    std::array<int32_t, kMaxIds> ids{};
  };
  int bits_ = 6;
  std::vector<Slot> slots_;
};

}  // namespace loam
