#include "loam/text/segments.h"
#include "loam/text/tokenizer_state.h"

namespace loam {
namespace {

std::vector<SpecialToken> looked_for(const std::vector<SpecialToken>& allowed, const Normalizer& normalizer,
                                     bool normalized) {
  std::vector<SpecialToken> tokens;
  for (SpecialToken token : allowed) {
    if (token.normalized != normalized) continue;
    if (normalized) token.text = normalizer.apply(token.text);
    if (!token.text.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

// The ranges from `first` on, as ranges of what the text was made from.
template <class Origin>
void trace_back(std::vector<TextRange>& ranges, size_t first, const Origin& origin) {
  for (size_t i = first; i < ranges.size(); ++i) ranges[i] = origin(ranges[i]);
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<SpecialToken>& allowed, const Normalizer& normalizer)
    : given(looked_for(allowed, normalizer, false)), normalized(looked_for(allowed, normalizer, true)) {}

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

void TextEncoder::encode_segment(std::string_view text, Before before, std::vector<int32_t>& ids,
                                 std::vector<TextRange>* ranges) {
  if (rules_.normalizer.empty() && added_.normalized.empty()) return encode_spaced(text, before, ids, ranges);
  std::vector<TextRange> origins;
  const std::string normalized = ranges ? rules_.normalizer.apply(text, origins) : rules_.normalizer.apply(text);
  SegmentReader reader(added_.normalized, normalized);
  for (Segment segment; reader.next(segment); before = segment.id >= 0 ? Before::kAddedToken : Before::kText) {
    const auto [begin, end] = segment.range;
    const size_t first = ranges ? ranges->size() : 0;
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      if (ranges) ranges->push_back({0, end - begin});
    } else {
      encode_spaced(std::string_view(normalized).substr(begin, end - begin), before, ids, ranges);
    }
    const auto origin = [&, at = begin](TextRange r) {
      if (r.begin < r.end) return TextRange{origins[at + r.begin].begin, origins[at + r.end - 1].end};
      const size_t place = at + r.begin < origins.size() ? origins[at + r.begin].begin : text.size();
      return TextRange{place, place};
    };
    if (ranges) trace_back(*ranges, first, origin);
  }
}

void TextEncoder::encode_spaced(std::string_view text, Before before, std::vector<int32_t>& ids,
                                std::vector<TextRange>* ranges) {
  const SpaceRule& rule = rules_.space;
  const bool wanted = (rule.prefix == SpaceRule::Prefix::kEach && before != Before::kText) ||
                      (rule.prefix == SpaceRule::Prefix::kFirst && before == Before::kStart);
  if (text.empty() || !wanted || (rule.unless_space && text[0] == ' ')) {
    return ranges ? encoder_.encode(text, ids, *ranges) : encoder_.encode(text, text.size(), ids);
  }
  const std::string spaced = " " + std::string(text);
  if (!ranges) return encoder_.encode(spaced, spaced.size(), ids);
  const size_t first = ranges->size();
  encoder_.encode(spaced, ids, *ranges);
  const auto without_space = [](size_t position) { return position > 0 ? position - 1 : 0; };
  trace_back(*ranges, first, [&](TextRange r) { return TextRange{without_space(r.begin), without_space(r.end)}; });
}

}  // namespace loam
