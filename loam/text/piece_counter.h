// How often each distinct piece of text occurs.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "loam/text/matcher.h"

namespace loam {

// The first eight bytes, most significant first: orders as the bytes do, but for equal ones.
uint64_t front_of(std::string_view piece);

// A hash table from byte strings to 64-bit counts. A string and its count lie together in one buffer, one record behind
// the other, so a string that is known costs one look at the table and one at its record.
//
// Invariants: a record begins at a multiple of 8 bytes: its count (8 bytes), its length (4), its bytes. No record
// begins at 0.
class PieceCounter {
 public:
  // Error{kInvalidArgument} for a piece of 4 GiB, or when all pieces together pass 32 GiB.
  void add(std::string_view piece, int64_t count);
  // Adds `count` for each of these pieces of `text`; quicker than one by one.
  void add_pieces(std::string_view text, std::span<const Piece> pieces, int64_t count);
  void add_all(const PieceCounter& other);

  int64_t size() const { return size_; }                // distinct pieces
  int64_t total_bytes() const { return total_bytes_; }  // of these
  int64_t memory() const { return static_cast<int64_t>(used_ * kUnit + slots_.size() * sizeof(Slot)); }

  // Calls visit(piece, count) for each, in the order in which they came.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (size_t at = 1; at < used_; at += record_units(length(at))) visit(text(at), count(at));
  }

  // All records in ascending order of their bytes, for text() and count().
  std::vector<uint32_t> sorted() const;
  std::string_view text(size_t record) const { return {byte_at(record) + kHeader, length(record)}; }
  int64_t count(size_t record) const { return *reinterpret_cast<const int64_t*>(byte_at(record)); }

 private:
  struct Slot {
    uint32_t hash;    // its low bits are the slot's home
    uint32_t record;  // 0: empty
  };
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  static constexpr size_t kUnit = 8, kHeader = 12;

  static size_t record_units(size_t length) { return (kHeader + length + kUnit - 1) / kUnit; }
  const char* byte_at(size_t record) const { return bytes_.get() + record * kUnit; }
  uint32_t length(size_t record) const { return *reinterpret_cast<const uint32_t*>(byte_at(record) + 8); }
  void add_hashed(std::string_view piece, uint32_t hash, int64_t count);
  void make_room(size_t pieces);
  uint32_t append(std::string_view piece, int64_t count);

  std::unique_ptr<char, Free> bytes_;  // grown by realloc(), which moves large buffers without a copy
  size_t used_ = 1, capacity_ = 0;     // in units
  std::vector<Slot> slots_;            // a power of two, at most half full
  int64_t size_ = 0, total_bytes_ = 0;
};

}  // namespace loam
