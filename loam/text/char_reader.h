// Characters and their kinds, read fast.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "loam/base/utf8.h"
#include "loam/text/unicode.h"

namespace loam {

// What the scanners tell apart; a character is of exactly one kind, and may be Han besides.
using CharKinds = uint16_t;
inline constexpr CharKinds kUpper = 1;         // Lu, Lt
inline constexpr CharKinds kLower = 2;         // Ll
inline constexpr CharKinds kCaseless = 4;      // Lm, Lo
inline constexpr CharKinds kMark = 8;          // M
inline constexpr CharKinds kNumber = 16;       // N
inline constexpr CharKinds kPunctuation = 32;  // P
inline constexpr CharKinds kSymbol = 64;       // S
inline constexpr CharKinds kNewline = 128;     // \r and \n
inline constexpr CharKinds kBlank = 256;       // all other White_Space
inline constexpr CharKinds kNothing = 512;     // C, and bytes that are not valid UTF-8
inline constexpr CharKinds kHan = 1024;
inline constexpr CharKinds kLetter = kUpper | kLower | kCaseless;
inline constexpr CharKinds kSpace = kNewline | kBlank;

constexpr CharKinds kinds_of(CharProperties properties) {
  if (properties.white_space()) return kBlank;
  const CharKinds han = properties.han() ? kHan : 0;
  switch (properties.category()) {
    case Category::kLu:
    case Category::kLt:
      return kUpper;
    case Category::kLl:
      return kLower;
    case Category::kLm:
    case Category::kLo:
      return kCaseless | han;
    case Category::kMn:
    case Category::kMc:
    case Category::kMe:
      return kMark | han;
    case Category::kNd:
    case Category::kNl:
    case Category::kNo:
      return kNumber | han;
    case Category::kSm:
    case Category::kSc:
    case Category::kSk:
    case Category::kSo:
      return kSymbol | han;
    case Category::kCc:
    case Category::kCf:
    case Category::kCs:
    case Category::kCo:
    case Category::kCn:
      return kNothing;
    default:
      return kPunctuation;
  }
}

inline constexpr std::array<CharKinds, 256> kKindsOfProperties = [] {
  std::array<CharKinds, 256> kinds{};
  for (int bits = 0; bits < 256; ++bits) kinds[bits] = kinds_of(CharProperties(static_cast<uint8_t>(bits)));
  return kinds;
}();

// By first byte; 0 where more bytes decide.
inline constexpr std::array<CharKinds, 256> kKindsOfByte = [] {
  std::array<CharKinds, 256> kinds{};
  for (int c = 0; c < 128; ++c) {
    kinds[c] = c > 32 && c < 127 ? kPunctuation : kNothing;
    if (c == ' ' || (c >= 9 && c <= 13)) kinds[c] = c == '\n' || c == '\r' ? kNewline : kBlank;
    if (c >= '0' && c <= '9') kinds[c] = kNumber;
    if (c >= 'A' && c <= 'Z') kinds[c] = kUpper;
    if (c >= 'a' && c <= 'z') kinds[c] = kLower;
  }
  for (const char c : std::string_view("$+<=>^`|~")) kinds[static_cast<unsigned char>(c)] = kSymbol;
  return kinds;
}();

struct CodePoint {
  uint32_t value;  // kNoCodePoint for a byte that is not valid UTF-8
  uint32_t length;
};
inline constexpr uint32_t kNoCodePoint = 0xFFFFFFFF;

// The character at `position` < text.size(), its first byte at least 0x80.
inline CodePoint read_code_point(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[position + i])); };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint32_t first = byte(0);
  if (first >= 0xC2 && first < 0xE0 && position + 1 < text.size() && follows(1)) {
    return {(first & 31) << 6 | (byte(1) & 63), 2};
  }
  if (first >= 0xE1 && first < 0xED && position + 2 < text.size() && follows(1) && follows(2)) {
    return {(first & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63), 3};
  }
  const Utf8Char c = decode_utf8(text, position);
  if (!c.valid) return {kNoCodePoint, 1};
  return {c.code_point, static_cast<uint32_t>(c.length)};
}

struct KnownChar {
  CharKinds kinds;
  uint32_t length;
};

// For a first byte of at least 0x80. Kept out of line: the loops over ASCII stay short.
[[gnu::noinline]] inline KnownChar read_long_char(std::string_view text, size_t position) {
  const CodePoint c = read_code_point(text, position);
  if (c.value == kNoCodePoint) return {kNothing, 1};
  return {kKindsOfProperties[CharProperties::of(c.value).bits()], c.length};
}

inline CharKinds kinds_of_byte(std::string_view text, size_t position) {
  return kKindsOfByte[static_cast<unsigned char>(text[position])];
}

inline KnownChar read_char(std::string_view text, size_t position) {
  const CharKinds fast = kinds_of_byte(text, position);
  if (fast != 0) [[likely]]
    return {fast, 1};
  return read_long_char(text, position);
}

// Where the character before `position` > 0 begins.
inline size_t char_before(std::string_view text, size_t position) {
  size_t begin = position - 1;
  while (begin > 0 && position - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin + read_char(text, begin).length == position ? begin : position - 1;
}

// The end of the characters of these kinds that stand at `position`.
inline size_t run_end(std::string_view text, size_t position, CharKinds wanted) {
  while (true) {
    while (position < text.size() && (kinds_of_byte(text, position) & wanted)) ++position;
    if (position == text.size() || kinds_of_byte(text, position) != 0) return position;
    const KnownChar c = read_long_char(text, position);
    if (!(c.kinds & wanted)) return position;
    position += c.length;
  }
}

// White space.
struct BlankRun {
  size_t end;
  size_t last;      // where its last character begins
  size_t line_end;  // after its last line end; where it begins if there is none

  // `\s+(?!\S)|\s+`: the look-ahead leaves the last character to what follows, unless it is the only one.
  size_t given_end(std::string_view text, size_t begin) const {
    return end == text.size() || last == begin ? end : last;
  }
};

inline BlankRun read_blanks(std::string_view text, size_t position) {
  BlankRun run{position, position, position};
  while (run.end < text.size()) {
    const KnownChar c = read_char(text, run.end);
    if (!(c.kinds & kSpace)) break;
    run.last = run.end;
    run.end += c.length;
    if (c.kinds & kNewline) run.line_end = run.end;
  }
  return run;
}

}  // namespace loam
