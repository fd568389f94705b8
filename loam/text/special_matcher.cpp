#include "loam/text/special_matcher.h"

#include <algorithm>
#include <cstring>

#include "loam/text/char_reader.h"

namespace loam {
namespace {

// `\w` of Unicode Technical Standard 18.
bool is_word(uint32_t code_point) {
  constexpr uint32_t kZeroWidthNonJoiner = 0x200C, kZeroWidthJoiner = 0x200D;
  const CharProperties p = CharProperties::of(code_point);
  const Category c = p.category();
  return p.alphabetic() || c == Category::kMn || c == Category::kMc || c == Category::kMe || c == Category::kNd ||
         c == Category::kPc || code_point == kZeroWidthNonJoiner || code_point == kZeroWidthJoiner;
}

bool is_space(std::string_view text, size_t position) { return read_char(text, position).kinds & kSpace; }

}  // namespace

SpecialMatcher::SpecialMatcher(std::vector<SpecialToken> specials) : specials_(std::move(specials)) {
  const auto by_text = [](const SpecialToken& a, const SpecialToken& b) { return a.text < b.text; };
  std::stable_sort(specials_.begin(), specials_.end(), by_text);
  for (const SpecialToken& s : specials_) {
    starts_[static_cast<unsigned char>(s.text[0])] = true;
    looks_around_ = looks_around_ || s.single_word || s.lstrip || s.rstrip;
  }
  if (std::count(starts_.begin(), starts_.end(), true) == 1) {
    only_start_ = static_cast<unsigned char>(specials_[0].text[0]);
  }
}

SpecialMatcher::Found SpecialMatcher::find(std::string_view text, size_t from, size_t free, bool may_continue) const {
  const Found none{text.size(), 0, -1, text.size()};
  if (specials_.empty()) return none;
  for (size_t position = from; position < text.size(); ++position) {
    if (only_start_ >= 0) {
      const void* hit = std::memchr(text.data() + position, only_start_, text.size() - position);
      if (!hit) return none;
      position = static_cast<const char*>(hit) - text.data();
    } else if (!starts_[static_cast<unsigned char>(text[position])]) {
      continue;
    }
    const Match match = longest(text, position, may_continue);
    if (match.open) return {position, 0, -1, position};
    if (!match.token) continue;
    const size_t behind = position + match.token->text.size();
    if (match.token->single_word && !stands_alone(text, position, behind)) {
      position = behind - 1;
      continue;
    }
    size_t begin = position, end = behind;
    while (match.token->lstrip && begin > free && is_space(text, char_before(text, begin)))
      begin = char_before(text, begin);
    if (match.token->rstrip) end = std::max(end, free);  // up to there it is white space that a token took
    while (match.token->rstrip && end < text.size() && is_space(text, end)) end += read_char(text, end).length;
    return {begin, end - begin, match.token->id, behind};
  }
  return none;
}

// No character of a word touches text[begin, end).
bool SpecialMatcher::stands_alone(std::string_view text, size_t begin, size_t end) const {
  const auto word_at = [&](size_t position) {
    const Utf8Char c = decode_utf8(text, position);
    return c.valid && is_word(c.code_point);
  };
  return (begin == 0 || !word_at(char_before(text, begin))) && (end == text.size() || !word_at(end));
}

// Narrows the sorted list byte by byte to the tokens that begin with text[position, position + depth).
SpecialMatcher::Match SpecialMatcher::longest(std::string_view text, size_t position, bool may_continue) const {
  Match best;
  size_t low = 0, high = specials_.size();
  for (size_t depth = 0; low < high; ++depth) {
    if (specials_[low].text.size() == depth) {
      best.token = &specials_[low];
      while (low < high && specials_[low].text.size() == depth) ++low;
      if (low == high) break;
    }
    if (position + depth == text.size()) {
      best.open = may_continue;
      break;
    }
    const unsigned char byte = static_cast<unsigned char>(text[position + depth]);
    const auto byte_at = [&](const SpecialToken& s) { return static_cast<unsigned char>(s.text[depth]); };
    const auto begin = specials_.begin() + low, end = specials_.begin() + high;
    const auto first = std::partition_point(begin, end, [&](const SpecialToken& s) { return byte_at(s) < byte; });
    const auto last = std::partition_point(first, end, [&](const SpecialToken& s) { return byte_at(s) == byte; });
    low = first - specials_.begin();
    high = last - specials_.begin();
  }
  return best;
}

}  // namespace loam
