// Whether each part of a cut text may be normalized for itself. Where it is hard to say, the answer is no.
#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "loam/base/utf8.h"
#include "loam/text/normalizer_steps.h"
#include "loam/text/precompiled_charsmap.h"
#include "loam/text/unicode.h"

namespace loam {
namespace {

constexpr std::u32string_view kAsciiSpace = U" \t\n\v\f\r";
constexpr char32_t kSpaceMark = 0x2581;

// Characters that no Unicode form changes or joins to others.
bool is_inert(char32_t c) { return c == kSpaceMark || kAsciiSpace.find(c) != std::u32string_view::npos; }

std::u32string characters(std::string_view text) {
  std::u32string all;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    all += c.code_point;
    at += static_cast<size_t>(c.length);
  }
  return all;
}

std::string utf8_of(char32_t c) {
  std::string bytes;
  append_utf8(bytes, c);
  return bytes;
}

// True if a regex matches only white space, and never nothing: one character or class of such, repeated or not.
bool matches_only_spaces(std::string_view regex) {
  size_t atom = 0;
  for (const std::string_view space :
       {" ", "\t", "\n", "\r", "\\s", "\\t", "\\n", "\\r", "[ \\t]", "[\\r\\n]", "[\\s]"}) {
    if (regex.starts_with(space)) atom = std::max(atom, space.size());
  }
  const std::string_view times = regex.substr(atom);
  if (atom == 0) return false;
  if (times.empty() || times == "+") return true;
  if (times.size() < 3 || times.front() != '{' || times.back() != '}') return false;
  const std::string_view counts = times.substr(1, times.size() - 2);
  return counts[0] >= '1' && counts[0] <= '9' && counts.find_first_not_of("0123456789,") == std::string_view::npos &&
         std::count(counts.begin(), counts.end(), ',') <= 1;
}

// A character of this kind takes what follows, a space too, into its grapheme cluster.
bool takes_what_follows(const PrecompiledCharsmap& map) {
  constexpr utf8proc_int32_t kFirst = 0x600, kEnd = 0x12000;  // all of Unicode 15.0 are between
  for (utf8proc_int32_t c = kFirst; c < kEnd; ++c) {
    if (utf8proc_get_property(c)->boundclass != UTF8PROC_BOUNDCLASS_PREPEND) continue;
    const std::string bytes = utf8_of(static_cast<char32_t>(c));
    if (map.shortest(bytes) || map.continues(bytes)) return true;
  }
  return false;
}

}  // namespace

// What follows a place where a text is replaced begins with `text`.
void CutPlace::right_becomes(std::string_view text) {
  const std::u32string made = characters(text);
  if (right_.empty()) return;
  if (made.empty() || !is_inert(made[0])) {
    right_.clear();
  } else if (right_.find(made[0]) == std::u32string::npos) {
    right_ += made[0];
  }
}

// All but `kept` become spaces, if none of those that are dropped is there.
void CutPlace::spaces_become_plain(std::u32string_view dropped, std::u32string_view kept) {
  const bool known = !right_.empty() && right_.find_first_of(dropped) == std::u32string::npos;
  std::u32string after;
  for (const char32_t c : right_) {
    const char32_t now = kept.find(c) == std::u32string_view::npos ? U' ' : c;
    if (after.find(now) == std::u32string::npos) after += now;
  }
  right_ = known ? after : U"";
}

struct CutPlace::Visitor {
  CutPlace& place;

  bool operator()(const normal::UnicodeForm&) const { return !place.right_.empty(); }
  bool operator()(const normal::Lowercase&) const { return true; }
  bool operator()(const normal::StripAccents&) const {
    place.after_solid_ = false;
    return true;
  }
  bool operator()(const normal::Strip& step) const { return !step.left && !step.right; }
  bool operator()(const normal::Prepend& step) const { return step.text.empty(); }
  bool operator()(const normal::Bert& step) const {
    if (step.clean_text) place.spaces_become_plain(U"\v\f", {&kSpaceMark, 1});
    if (step.clean_text || step.chinese_chars || step.strip_accents) place.after_solid_ = false;
    return !step.strip_accents || !place.right_.empty();
  }
  bool operator()(const normal::Nmt&) const {
    place.spaces_become_plain(U"\v", U"");
    place.after_solid_ = false;
    return true;
  }

  bool operator()(const normal::Replace& step) const {
    if (step.regex) {
      if (!matches_only_spaces(step.pattern) || !place.after_solid_) return false;
      place.right_becomes(step.content);
      return true;
    }
    const std::u32string pattern = characters(step.pattern), content = characters(step.content);
    if (pattern.empty()) return false;
    // An occurrence over the place would have a character of the right side behind its first.
    const bool over = pattern.find_first_of(place.right_, 1) != std::u32string::npos;
    if (pattern.size() > 1 && (place.right_.empty() || over)) return false;
    if (place.right_.find(pattern[0]) != std::u32string::npos) {
      place.right_becomes(step.content);
      if (pattern.size() == 1 && !content.starts_with(pattern[0])) std::erase(place.right_, pattern[0]);
    }
    if (content.empty() || CharProperties::of(content.back()).white_space()) place.after_solid_ = false;
    return true;
  }

  bool operator()(const normal::Precompiled& step) const {
    if (!step.kept.empty()) return false;
    // A carriage return that has lost what stood behind it is one cluster with a line feed.
    if (!std::exchange(place.after_solid_, false) && place.right_.find(U'\n') != std::u32string::npos) return false;
    const bool ascii = std::all_of(place.right_.begin(), place.right_.end(), [](char32_t c) { return c < 0x80; });
    if (place.right_.empty() || !ascii) return false;
    const PrecompiledCharsmap map(step.table);
    std::string spaces;
    for (const char32_t c : place.right_) spaces += utf8_of(c);
    if (step.longest_match ? map.holds_inside(spaces) : takes_what_follows(map)) return false;
    const std::u32string before = place.right_;
    for (const char32_t c : before) {
      const auto match = map.shortest(utf8_of(c));
      if (match) place.right_becomes(match->replacement);
      if (map.continues(utf8_of(c))) place.right_.clear();
    }
    return true;
  }
};

bool CutPlace::survives(const NormalizerStep& step) { return std::visit(Visitor{*this}, step); }

}  // namespace loam
