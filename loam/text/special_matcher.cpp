#include "loam/text/special_matcher.h"

#include <algorithm>
#include <cstring>

namespace loam {

SpecialMatcher::SpecialMatcher(std::vector<SpecialToken> specials) : specials_(std::move(specials)) {
  const auto by_text = [](const SpecialToken& a, const SpecialToken& b) { return a.text < b.text; };
  std::stable_sort(specials_.begin(), specials_.end(), by_text);
  for (const SpecialToken& s : specials_) starts_[static_cast<unsigned char>(s.text[0])] = true;
  if (std::count(starts_.begin(), starts_.end(), true) == 1) {
    only_start_ = static_cast<unsigned char>(specials_[0].text[0]);
  }
}

SpecialMatcher::Found SpecialMatcher::find(std::string_view text, size_t from, bool may_continue) const {
  const Found none{text.size(), 0, -1};
  if (specials_.empty()) return none;
  for (size_t position = from; position < text.size(); ++position) {
    if (only_start_ >= 0) {
      const void* hit = std::memchr(text.data() + position, only_start_, text.size() - position);
      if (!hit) return none;
      position = static_cast<const char*>(hit) - text.data();
    } else if (!starts_[static_cast<unsigned char>(text[position])]) {
      continue;
    }
    const Found found = match(text, position, may_continue);
    if (found.position != text.size()) return found;
  }
  return none;
}

// Narrows the sorted list byte by byte to the tokens that begin with text[position, position + depth).
SpecialMatcher::Found SpecialMatcher::match(std::string_view text, size_t position, bool may_continue) const {
  Found best{text.size(), 0, -1};
  size_t low = 0, high = specials_.size();
  for (size_t depth = 0; low < high; ++depth) {
    if (specials_[low].text.size() == depth) {
      best = {position, depth, specials_[low].id};
      while (low < high && specials_[low].text.size() == depth) ++low;
      if (low == high) break;
    }
    if (position + depth == text.size()) {
      if (may_continue) return {position, 0, -1};
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
