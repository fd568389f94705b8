#include "loam/text/merge_cuts.h"

#include <algorithm>
#include <bit>

namespace loam {
namespace {

constexpr size_t kMaxCharacter = 4;  // bytes

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The bytes of a character as one number; 0 where it is not all there, and for NUL, which so counts as a part.

// The one that ends at `end`: from the last byte that begins a character on.
uint32_t character_before(std::string_view text, size_t end) {
  uint32_t bytes = 0;
  for (size_t i = 0; i < std::min(end, kMaxCharacter); ++i) {
    const char c = text[end - 1 - i];
    bytes |= uint32_t{static_cast<unsigned char>(c)} << 8 * i;
    if (!is_continuation(c)) return bytes;
  }
  return 0;
}

// The one that begins at `begin`: as many bytes as its first byte announces.
uint32_t character_from(std::string_view text, size_t begin) {
  const auto first = static_cast<unsigned char>(text[begin]);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (begin + length > text.size()) return 0;
  uint32_t bytes = 0;
  for (size_t i = 0; i < length; ++i) bytes = bytes << 8 | static_cast<unsigned char>(text[begin + i]);
  return bytes;
}

}  // namespace

MergeCuts::MergeCuts(const std::vector<Sides>& merges) {
  std::vector<std::pair<uint32_t, uint32_t>> found;
  for (const auto& [left, right] : merges) {
    bytes_.add(left.back(), right.front());
    if (is_continuation(right.front()) || (is_ascii(left.back()) && is_ascii(right.front()))) continue;
    const uint32_t before = character_before(left, left.size()), after = character_from(right, 0);
    if (before == 0 || after == 0) {
      partial_.add(left.back(), right.front());
    } else {
      found.emplace_back(before, after);
    }
  }
  while (size_t{1} << bits_ < 32 * found.size()) ++bits_;
  characters_.resize(size_t{1} << bits_);
  for (const auto& [before, after] : found) characters_[slot(before, after)] = true;
}

// Two pairs may have one slot: then a place that could be a cut is not taken for one.
size_t MergeCuts::slot(uint32_t left, uint32_t right) const {
  const uint64_t mixed = left * 0x9E3779B97F4A7C15u ^ std::rotl(right * 0xC2B2AE3D27D4EB4Fu, 32);
  return mixed * 0xD6E8FEB86659FD93u >> (64 - bits_);
}

bool MergeCuts::is_cut(std::string_view text, size_t at) const {
  const char left = text[at - 1], right = text[at];
  if (!bytes_.contains(left, right)) return true;
  if (is_continuation(right) || (is_ascii(left) && is_ascii(right))) return false;
  if (partial_.contains(left, right)) return false;
  const uint32_t before = character_before(text, at), after = character_from(text, at);
  if (before == 0) return false;
  return after == 0 || !characters_[slot(before, after)];
}

size_t MergeCuts::next_cut(std::string_view text, size_t from) const {
  do {
    ++from;
  } while (from < text.size() && (is_continuation(text[from]) || !is_cut(text, from)));
  return from;
}

}  // namespace loam
