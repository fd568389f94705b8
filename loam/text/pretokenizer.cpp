#include "loam/text/pretokenizer.h"

#include <array>

#include "loam/base/error.h"
#include "loam/base/utf8.h"
#include "loam/text/unicode.h"

namespace loam {
namespace {

constexpr bool is_space_byte(unsigned char c) { return c == ' ' || (c >= 9 && c <= 13); }

// The class of each ASCII character; kMany marks the bytes of longer characters.
constexpr uint8_t kMany = 255;
constexpr std::array<uint8_t, 256> kByteClass = [] {
  std::array<uint8_t, 256> classes{};
  for (int c = 0; c < 256; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    CharClass kind = CharClass::kOther;
    if (letter) kind = CharClass::kLetter;
    if (c >= '0' && c <= '9') kind = CharClass::kNumber;
    if (is_space_byte(static_cast<unsigned char>(c))) kind = CharClass::kSpace;
    classes[c] = c < 128 ? static_cast<uint8_t>(kind) : kMany;
  }
  return classes;
}();

uint8_t byte_class(std::string_view text, size_t position) {
  return kByteClass[static_cast<unsigned char>(text[position])];
}

struct ClassedChar {
  CharClass kind;
  size_t length;
};

// A malformed sequence is of no class: every byte of it lands in the same kind of run, however it is cut.
ClassedChar class_at(std::string_view text, size_t position) {
  const uint8_t fast = byte_class(text, position);
  if (fast != kMany) return {static_cast<CharClass>(fast), 1};
  const Utf8Char c = decode_utf8(text, position);
  return {c.valid ? char_class(c.code_point) : CharClass::kOther, static_cast<size_t>(c.length)};
}

// The end of the run of characters of class `kind` that starts at `position`.
size_t run_end(std::string_view text, size_t position, CharClass kind) {
  while (true) {
    while (position < text.size() && byte_class(text, position) == static_cast<uint8_t>(kind)) ++position;
    if (position == text.size() || byte_class(text, position) != kMany) return position;
    const ClassedChar c = class_at(text, position);
    if (c.kind != kind) return position;
    position += c.length;
  }
}

// The length of 's, 't, 're, 've, 'm, 'll or 'd at `position`, where an apostrophe stands; 0 if none of them does.
size_t contraction_length(std::string_view text, size_t position) {
  if (position + 1 >= text.size()) return 0;
  const char a = text[position + 1];
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (position + 2 >= text.size()) return 0;
  const char b = text[position + 2];
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// White space: all of it at the end of the text; otherwise all but its last character, which belongs to what follows
// (the look-ahead of `\s+(?!\S)`), unless it is the only one.
size_t space_run_length(std::string_view text, size_t position) {
  size_t end = position, last = position;
  while (end < text.size()) {
    const ClassedChar c = class_at(text, end);
    if (c.kind != CharClass::kSpace) return (last > position ? last : end) - position;
    last = end;
    end += c.length;
  }
  return end - position;
}

size_t next_gpt2_piece(std::string_view text, size_t position) {
  const char first = text[position];
  if (first == ' ' && position + 1 < text.size()) {
    const ClassedChar next = class_at(text, position + 1);
    if (next.kind != CharClass::kSpace) return run_end(text, position + 1 + next.length, next.kind) - position;
  }
  if (first == '\'') {
    if (const size_t length = contraction_length(text, position)) return length;
  }
  const ClassedChar c = class_at(text, position);
  if (c.kind == CharClass::kSpace) return space_run_length(text, position);
  return run_end(text, position + c.length, c.kind) - position;
}

}  // namespace

Pretokenizer parse_pretokenizer(std::string_view name) {
  if (name == "gpt2") return Pretokenizer::kGpt2;
  fail(ErrorCode::kInvalidArgument, "unknown pre-tokenizer \"{}\"; known: gpt2", name);
}

std::string_view pretokenizer_name(Pretokenizer) { return "gpt2"; }

std::string_view pretokenizer_pattern(Pretokenizer) {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

size_t next_piece(Pretokenizer, std::string_view text, size_t position) { return next_gpt2_piece(text, position); }

bool is_independent_cut(std::string_view text, size_t position) {
  const unsigned char before = static_cast<unsigned char>(text[position - 1]);
  return before < 128 && !is_space_byte(before) && is_space_byte(static_cast<unsigned char>(text[position]));
}

size_t stable_prefix(Pretokenizer pretokenizer, std::string_view text) {
  const std::string_view whole = text.substr(0, text.size() - incomplete_utf8_suffix(text));
  size_t position = 0;
  for (size_t cut = whole.size(); cut-- > 1;) {
    if (is_independent_cut(whole, cut)) {
      position = cut;
      break;
    }
  }
  while (position < whole.size()) {
    const size_t end = position + next_piece(pretokenizer, whole, position);
    // A piece that touches the end may grow. So may an apostrophe before one letter, into 're, 've or 'll.
    if (end == whole.size() || (whole[position] == '\'' && end == position + 1 && end + 1 == whole.size())) break;
    position = end;
  }
  return position;
}

}  // namespace loam
