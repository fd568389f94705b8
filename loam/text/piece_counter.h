// How often each distinct piece of text occurs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace loam {

// A hash table from byte strings to 64-bit counts; the strings lie one after the other in one buffer. Memory: the
// distinct strings.
class PieceCounter {
 public:
  struct Entry {
    uint64_t hash;
    int64_t offset;
    int64_t length;
    int64_t count;
  };

  void add(std::string_view piece, int64_t count);
  void add_all(const PieceCounter& other);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  const std::vector<Entry>& entries() const { return entries_; }
  int64_t total_bytes() const { return static_cast<int64_t>(bytes_.size()); }
  std::string_view text(const Entry& entry) const {
    return std::string_view(bytes_).substr(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.length));
  }

 private:
  void add_hashed(std::string_view piece, uint64_t hash, int64_t count);
  void grow();

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<int64_t> slots_;  // index of the entry, or -1; a power of two, at most half full
};

}  // namespace loam
