#include "loam/base/utf8.h"

#include <fmt/format.h>

namespace loam {
namespace {

// What may follow a lead byte: the number of continuation bytes and the range of the first of them (Unicode 15.0, table
// 3-7).
struct Lead {
  int continuations;  // 0: not the lead of a longer sequence
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};  // no surrogates
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

// The number of bytes from `position` on, the lead included, that are a well-formed beginning.
int valid_prefix(std::string_view text, size_t position, Lead lead) {
  int length = 1;
  while (length <= lead.continuations && position + length < text.size()) {
    const uint8_t byte = static_cast<uint8_t>(text[position + length]);
    const bool fits = length == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!fits) break;
    ++length;
  }
  return length;
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t position) {
  const uint8_t first = static_cast<uint8_t>(text[position]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = lead_of(first);
  const int length = valid_prefix(text, position, lead);
  if (lead.continuations == 0 || length != lead.continuations + 1) return {kReplacementCharacter, length, false};
  uint32_t code_point = first & (0x3F >> lead.continuations);
  for (int i = 1; i < length; ++i) code_point = code_point << 6 | (static_cast<uint8_t>(text[position + i]) & 0x3F);
  return {code_point, length, true};
}

void append_utf8(std::string& out, uint32_t code_point) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) code_point = kReplacementCharacter;
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
    return;
  }
  const int continuations = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  out += static_cast<char>((0xFF00 >> (continuations + 1) & 0xFF) | code_point >> (6 * continuations));
  for (int i = continuations - 1; i >= 0; --i) out += static_cast<char>(0x80 | (code_point >> (6 * i) & 0x3F));
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    if (c.valid) {
      out.append(text, i, c.length);
    } else {
      append_utf8(out, kReplacementCharacter);
    }
    i += c.length;
  }
  return out;
}

std::string printable(std::string_view text, bool keep_lines, size_t limit) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const size_t length = static_cast<size_t>(c.length);
    if (at + length > limit) return out + "...";
    const bool control = c.code_point < 0x20 || (c.code_point >= 0x7F && c.code_point < 0xA0);
    if (c.valid && (!control || (keep_lines && c.code_point == '\n'))) {
      out += text.substr(at, length);
    } else {
      for (const char byte : text.substr(at, length)) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
    }
    at += length;
  }
  return out;
}

size_t incomplete_utf8_suffix(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t position = text.size() - back;
    const uint8_t byte = static_cast<uint8_t>(text[position]);
    if ((byte & 0xC0) == 0x80) continue;
    const Lead lead = lead_of(byte);
    const bool cut_short = lead.continuations + 1 > static_cast<int>(back);
    return cut_short && valid_prefix(text, position, lead) == static_cast<int>(back) ? back : 0;
  }
  return 0;
}

}  // namespace loam
