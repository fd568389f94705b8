// The classes of sixty-four bytes at once, as sets of places: bit i stands for byte i.
#pragma once

#include <cstddef>
#include <cstdint>

namespace loam {

struct AsciiBlock {
  static constexpr size_t kBytes = 64;

  uint64_t letters, small;  // small: a to z
  uint64_t digits;
  uint64_t spaces;    // U+0020 alone
  uint64_t blanks;    // space, tab, vertical tab, form feed
  uint64_t newlines;  // \r and \n
  uint64_t apostrophes, slashes;
  uint64_t foreign;  // bytes of 0x80 and more; in no other set

  // Reads `bytes[0, kBytes)`.
  static AsciiBlock read(const char* bytes);
};

}  // namespace loam
