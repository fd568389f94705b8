// UTF-8, decoded without trust.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace loam {

inline constexpr uint32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

struct Utf8Char {
  uint32_t code_point;  // kReplacementCharacter for a malformed sequence
  int length;           // bytes consumed, at least 1
  bool valid;
};

// The character at `position` < text.size(). A malformed sequence consumes its maximal valid prefix (Unicode 15.0,
// section 3.9, table 3-8), the rule of Python's errors="replace" and of the WHATWG decoder.
Utf8Char decode_utf8(std::string_view text, size_t position);

void append_utf8(std::string& out, uint32_t code_point);

// `text` with each malformed sequence replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// `text` from outside, fit for a terminal: control characters and bytes that are not UTF-8 as "\x1b"; a line end stays
// with `keep_lines`. Longer text than `limit` bytes is cut between characters and ends in "...".
std::string printable(std::string_view text, bool keep_lines = false, size_t limit = std::string_view::npos);

// The number of bytes at the end of `text` that begin a character which is not complete yet (0 to 3).
size_t incomplete_utf8_suffix(std::string_view text);

}  // namespace loam
