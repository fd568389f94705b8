// The ids of pieces seen before. Pieces of up to 15 bytes are compared as two machine words.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "loam/base/huge_pages.h"
#include "loam/text/perfect_hash.h"

namespace loam {

inline constexpr size_t kMaxKeyBytes = 15;

// The bytes of a short piece, zeros behind them, and in the last byte its length.
struct PieceKey {
  uint64_t low = 0, high = 0;

  // REQUIRES: length <= kMaxKeyBytes. Reads no byte outside `text`.
  static PieceKey of(std::string_view text, size_t position, size_t length) {
    uint64_t words[2] = {0, 0};
    if (position + sizeof(words) > text.size()) {
      std::memcpy(words, text.data() + position, length);
    } else {
      uint64_t kept[2];
      std::memcpy(words, text.data() + position, sizeof(words));
      std::memcpy(kept, kKeptBytes.data() + sizeof(words) - length, sizeof(words));
      words[0] &= kept[0];
      words[1] &= kept[1];
    }
    return {words[0], words[1] | uint64_t{length} << 56};
  }

  uint64_t hash() const {
    const uint64_t mixed = low * 0x9E3779B97F4A7C15u ^ std::rotl(high * 0xC2B2AE3D27D4EB4Fu, 31);
    return (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93u;
  }
  bool operator==(const PieceKey& other) const { return ((low ^ other.low) | (high ^ other.high)) == 0; }

 private:
  static constexpr std::array<unsigned char, 32> kKeptBytes = [] {  // sixteen of 0xFF, sixteen of 0
    std::array<unsigned char, 32> bytes{};
    for (size_t i = 0; i < 16; ++i) bytes[i] = 0xFF;
    return bytes;
  }();
};

// The pieces that are one token. Thread safety: const members may be called from any thread.
class WordTable {
 public:
  struct Word {
    PieceKey key;
    int32_t id = -1;
  };

  WordTable() : WordTable(std::vector<Word>()) {}
  // A word may be left out if another has its hash.
  explicit WordTable(std::vector<Word> words);

  // Inlined always: a call that does nothing else counts as pure, and is left out.
  [[gnu::always_inline]] void prefetch(const PieceKey& key) const {
    __builtin_prefetch(&slots_[places_.slot(key.hash())]);
  }
  int32_t find(const PieceKey& key) const {  // -1 if it is not there
    const Word& word = slots_[places_.slot(key.hash())];
    return word.key == key ? word.id : -1;
  }
  bool is_complete() const { return places_.misfits().empty(); }

 private:
  PerfectHash places_;
  HugePageVector<Word> slots_;
};

// The ids of pieces, up to kMaxIds each; a piece that falls on the slot of another replaces it.
template <size_t kMaxIds>
class PieceCache {
 public:
  struct Slot {
    PieceKey key;                              // no piece has the key of zeros
    std::array<int32_t, 1 + kMaxIds> value{};  // how many ids, and the ids
  };

  // At most 2^most_bits slots; fewer for a text of few `bytes`.
  PieceCache(size_t bytes, int most_bits) {
    while (bits_ < most_bits && size_t{1} << (bits_ + 5) < bytes) ++bits_;
    slots_.resize(size_t{1} << bits_);
  }
  // Where the ids of the piece are, if the key there is `key`.
  const Slot& slot(const PieceKey& key) const { return slots_[key.hash() >> (64 - bits_)]; }

  void insert(const PieceKey& key, std::span<const int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    Slot& slot = slots_[key.hash() >> (64 - bits_)];
    slot.key = key;
    slot.value[0] = static_cast<int32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), slot.value.begin() + 1);
  }

 private:
  int bits_ = 6;
  HugePageVector<Slot> slots_;
};

}  // namespace loam
