#include <algorithm>

#include "loam/text/char_reader.h"
#include "loam/text/tokenizer.h"
#include "loam/text/tokenizer_state.h"

namespace loam {

struct StreamEncoder::State {
  static constexpr size_t kNearBytes = 256;  // in front of a cut, enough for what a character becomes there

  State(const Tokenizer::State& of, const SpecialPolicy& policy, size_t hold)
      : tokenizer(of),
        added(of.added(policy)),
        encoder(*of.rules, *of.pieces, added, size_t{1} << 30),
        hold_bytes(hold),
        wait_until(hold) {
    for (const SpecialToken& s : of.specials) {
      if (!s.always && !policy.allows(s.text)) continue;
      holds_spaces = holds_spaces || (s.normalized && s.text.find_first_of(" \t\n") != std::string::npos);
      // White space behind a token may belong to it, or stand where a space is put in front.
      inside_added.add_token(s.text);
      for (const char c : {' ', '\n'}) inside_added.add(s.text.back(), c);
    }
  }

  void consume(bool final, std::vector<int32_t>& out);
  void consume_plain(bool final, std::vector<int32_t>& out);
  size_t last_cut() const;
  bool is_cut(size_t cut) const;

  const Tokenizer::State& tokenizer;
  AddedTokens added;
  TextEncoder encoder;
  NeighbourSet inside_added;
  bool holds_spaces = false;  // of a token that is looked for in normalized text
  std::string held;
  size_t hold_bytes;
  size_t wait_until;  // bytes held before the next attempt
  Before before_held = Before::kStart;
};

// Encodes what no continuation can change, or, with `final`, everything.
void StreamEncoder::State::consume(bool final, std::vector<int32_t>& out) {
  if (tokenizer.plain) return consume_plain(final, out);
  const size_t end = final ? held.size() : last_cut();
  if (end == 0) return;
  encoder.encode(std::string_view(held).substr(0, end), before_held, out, nullptr);
  before_held = Before::kText;
  held.erase(0, end);
}

// The last place where the text can be cut before white space: neither the normalizer nor the pre-tokenizer, nor any
// token, reaches across. 0 if there is none.
size_t StreamEncoder::State::last_cut() const {
  if (holds_spaces || !tokenizer.rules->normalizer.cuts_before_spaces()) return 0;
  constexpr int kTries = 16;
  int tries = 0;
  for (size_t cut = held.size(); cut-- > 1 && tries < kTries;) {
    const char left = held[cut - 1], right = held[cut];
    if ((right != ' ' && right != '\n') || inside_added.contains(left, right)) continue;
    const CharKinds before = read_char(held, char_before(held, cut)).kinds;
    if (!(before & (kLetter | kMark | kNumber | kPunctuation | kSymbol))) continue;
    ++tries;
    if (is_cut(cut)) return cut;
  }
  return 0;
}

// Judged by what the pre-tokenizer and the model see: normalized text.
bool StreamEncoder::State::is_cut(size_t cut) const {
  const TokenizerRules& rules = *tokenizer.rules;
  std::string near = held.substr(cut > kNearBytes ? cut - kNearBytes : 0, std::min(cut, kNearBytes));
  const std::string left = rules.normalizer.apply(near), right = rules.normalizer.apply(held.substr(cut, 1));
  if (left.empty() || right.empty() || (read_char(left, char_before(left, left.size())).kinds & kSpace)) return false;
  if (!rules.pretokenizer.splits().empty()) return rules.pretokenizer.is_independent_cut(left + right, left.size());
  const NeighbourSet* neighbours = tokenizer.pieces->neighbours();
  return neighbours && !neighbours->contains(left.back(), right.front());
}

void StreamEncoder::State::consume_plain(bool final, std::vector<int32_t>& out) {
  const std::string_view text = held;
  size_t from = 0;
  while (from < text.size()) {
    const SpecialMatcher::Found found = added.given.find(text, from, !final);
    const std::string_view segment = text.substr(from, found.position - from);
    const bool ends = final || found.length > 0;
    const size_t limit = ends ? segment.size() : tokenizer.rules->pretokenizer.stable_prefix(segment);
    encoder.encode_pieces(segment, limit, out);
    from += limit + found.length;
    if (found.length == 0) break;
    out.push_back(found.id);
  }
  held.erase(0, from);
}

StreamEncoder::StreamEncoder(const Tokenizer& tokenizer, SpecialPolicy policy, size_t hold_bytes)
    : state_(std::make_unique<State>(*tokenizer.state_, policy, hold_bytes)) {}
StreamEncoder::~StreamEncoder() = default;
StreamEncoder::StreamEncoder(StreamEncoder&&) noexcept = default;
StreamEncoder& StreamEncoder::operator=(StreamEncoder&&) noexcept = default;

void StreamEncoder::push(std::string_view bytes, std::vector<int32_t>& out) {
  state_->held.append(bytes);
  if (state_->held.size() < state_->wait_until) return;
  state_->consume(false, out);
  // Twice what could not be cut, so that the total work stays linear however long a piece gets.
  state_->wait_until = std::max(state_->hold_bytes, 2 * state_->held.size());
}

void StreamEncoder::finish(std::vector<int32_t>& out) {
  state_->consume(true, out);
  state_->wait_until = state_->hold_bytes;
  state_->before_held = Before::kStart;
}

}  // namespace loam
