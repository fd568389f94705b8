#include <algorithm>

#include "loam/text/char_reader.h"
#include "loam/text/segments.h"
#include "loam/text/sentencepiece_rules.h"
#include "loam/text/tokenizer_state.h"

namespace loam {
namespace {

// A token in normalized text has the space in front that every text gets there.
std::vector<SpecialToken> looked_for(const std::vector<SpecialToken>& allowed, const TokenizerRules& rules,
                                     bool normalized) {
  const bool prefixed =
      rules.space.prefix == SpaceRule::Prefix::kEach && !rules.space.unless_space && !rules.space.words;
  std::vector<SpecialToken> tokens;
  for (SpecialToken token : allowed) {
    if (token.normalized != normalized) continue;
    if (normalized) token.text = (prefixed ? " " : "") + rules.normalizer.apply(token.text);
    if (!token.text.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

// Text made from another, and where each of its bytes comes from.
struct Prepared {
  std::string text;
  std::vector<TextRange> origins;

  Prepared() = default;
  explicit Prepared(std::string_view same) : text(same) {
    for (size_t i = 0; i < same.size(); ++i) origins.push_back({i, i + 1});
  }
  void insert_space() {
    text.insert(0, 1, ' ');
    if (!origins.empty()) origins.insert(origins.begin(), {origins[0].begin, origins[0].begin});
  }
  // Of the bytes [begin, end) of `text`; `size` is that of the other text.
  TextRange origin(TextRange r, size_t size) const {
    const size_t begin = r.begin < origins.size() ? origins[r.begin].begin : size;
    return r.begin < r.end ? TextRange{begin, std::max(begin, origins[r.end - 1].end)} : TextRange{begin, begin};
  }
};

// Each word with one space in front, which is not there twice where U+2581 has become one.
Prepared words_of(std::string_view text) {
  Prepared words;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const KnownChar c = read_char(text, i);
    const bool space = c.kinds & kSpace, mark = text.substr(i).starts_with(kSpaceMark);
    if (!space && !in_word && !mark) {
      words.text += ' ';
      words.origins.push_back({i, i});
    }
    in_word = !space;
    if (!space) {
      words.text += mark ? " " : text.substr(i, c.length);
      for (size_t k = 0; mark ? k < 1 : k < c.length; ++k)
        words.origins.push_back(mark ? TextRange{i, i + c.length} : TextRange{i + k, i + k + 1});
    }
    i += c.length;
  }
  return words;
}

// The ranges from `first` on, as ranges of what the text was made from.
template <class Origin>
void trace_back(std::vector<TextRange>& ranges, size_t first, const Origin& origin) {
  for (size_t i = first; i < ranges.size(); ++i) ranges[i] = origin(ranges[i]);
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<SpecialToken>& allowed, const TokenizerRules& rules)
    : given(looked_for(allowed, rules, false)), normalized(looked_for(allowed, rules, true)) {}

void TextEncoder::encode(std::string_view text, Before before, std::vector<int32_t>& ids,
                         std::vector<TextRange>* ranges) {
  SegmentReader reader(added_.given, text);
  for (Segment segment; reader.next(segment); before = segment.id >= 0 ? Before::kAddedToken : Before::kText) {
    const auto [begin, end] = segment.range;
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      if (ranges) ranges->push_back(segment.range);
      continue;
    }
    const size_t first = ranges ? ranges->size() : 0;
    encode_segment(text.substr(begin, end - begin), before, ids, ranges);
    if (ranges) trace_back(*ranges, first, [at = begin](TextRange r) { return TextRange{at + r.begin, at + r.end}; });
  }
}

bool TextEncoder::wants_space(Before before) const {
  const SpaceRule::Prefix prefix = rules_.space.prefix;
  return prefix == SpaceRule::Prefix::kEach ? before != Before::kText
                                            : prefix == SpaceRule::Prefix::kFirst && before == Before::kStart;
}

void TextEncoder::encode_segment(std::string_view text, Before before, std::vector<int32_t>& ids,
                                 std::vector<TextRange>* ranges) {
  if (rules_.normalizer.empty() && added_.normalized.empty() && rules_.space.unless_space)
    return encode_spaced(text, before, ids, ranges);
  Prepared prepared;
  prepared.text = ranges ? rules_.normalizer.apply(text, prepared.origins) : rules_.normalizer.apply(text);
  if (!rules_.space.unless_space && !rules_.space.words && wants_space(before) && !prepared.text.empty())
    prepared.insert_space();
  SegmentReader reader(added_.normalized, prepared.text);
  for (Segment segment; reader.next(segment); before = segment.id >= 0 ? Before::kAddedToken : Before::kText) {
    const auto [begin, end] = segment.range;
    const size_t first = ranges ? ranges->size() : 0;
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      if (ranges) ranges->push_back({0, end - begin});
    } else {
      encode_spaced(std::string_view(prepared.text).substr(begin, end - begin), before, ids, ranges);
    }
    if (ranges) {
      trace_back(*ranges, first, [&, at = begin](TextRange r) {
        return prepared.origin({at + r.begin, at + r.end}, text.size());
      });
    }
  }
}

// A stretch between added tokens of normalized text.
void TextEncoder::encode_spaced(std::string_view text, Before before, std::vector<int32_t>& ids,
                                std::vector<TextRange>* ranges) {
  const SpaceRule& rule = rules_.space;
  const bool prefixed = rule.unless_space && wants_space(before) && !text.starts_with(' ');
  if (text.empty() || (!prefixed && !rule.words))
    return ranges ? encoder_.encode(text, ids, *ranges) : encoder_.encode(text, text.size(), ids);
  Prepared prepared = rule.words ? words_of(text) : Prepared(text);
  if (prefixed && !rule.words) prepared.insert_space();
  if (!ranges) return encoder_.encode(prepared.text, prepared.text.size(), ids);
  const size_t first = ranges->size();
  encoder_.encode(prepared.text, ids, *ranges);
  trace_back(*ranges, first, [&](TextRange r) { return prepared.origin(r, text.size()); });
}

}  // namespace loam
