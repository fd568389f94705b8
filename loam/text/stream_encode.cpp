#include <algorithm>

#include "loam/base/error.h"
#include "loam/base/parallel_for.h"
#include "loam/text/char_reader.h"
#include "loam/text/tokenizer.h"
#include "loam/text/tokenizer_state.h"

namespace loam {

struct StreamEncoder::State {
  static constexpr size_t kNearBytes = 256;  // in front of a cut, enough for what a character becomes there

  static constexpr size_t kLeastPart = size_t{1} << 15;  // bytes for a thread of its own

  State(const Tokenizer::State& of, const SpecialPolicy& policy, size_t hold, int threads)
      : tokenizer(of), added(of.added(policy)), hold_bytes(hold), wait_until(hold) {
    for (int i = 0; i < threads; ++i)
      encoders.push_back(std::make_unique<TextEncoder>(*of.rules, *of.pieces, added, size_t{1} << 30));
    for (const SpecialToken& s : of.specials) {
      if (!s.always && !policy.allows(s.text)) continue;
      holds_spaces = holds_spaces || (s.normalized && s.text.find_first_of(" \t\n") != std::string::npos);
      // White space behind a token may belong to it, or stand where a space is put in front.
      inside_added.add_token(s.text);
      for (const char c : {' ', '\n'}) inside_added.add(s.text.back(), c);
    }
  }

  void consume(bool final, std::vector<int32_t>& out);
  void consume_parts(std::vector<int32_t>& out);
  void consume_plain(bool final, std::vector<int32_t>& out);
  size_t last_cut(size_t from, size_t to) const;
  bool is_cut(size_t cut) const;
  void drop(size_t count);

  const Tokenizer::State& tokenizer;
  AddedTokens added;
  std::vector<std::unique_ptr<TextEncoder>> encoders;  // one for each thread
  NeighbourSet inside_added;
  bool holds_spaces = false;  // of a token that is looked for in normalized text
  std::string held;
  size_t hold_bytes;
  size_t wait_until;  // bytes held before the next attempt
  Before before_held = Before::kStart;
};

// Encodes what no continuation can change, or, with `final`, everything.
void StreamEncoder::State::consume(bool final, std::vector<int32_t>& out) {
  if (encoders.size() > 1) consume_parts(out);
  if (tokenizer.plain) return consume_plain(final, out);
  const size_t end = final ? held.size() : last_cut(0, held.size());
  if (end == 0) return;
  encoders[0]->encode(std::string_view(held).substr(0, end), before_held, out, nullptr);
  drop(end);
}

// Cuts what is held into a part for each thread; a rest stays.
void StreamEncoder::State::consume_parts(std::vector<int32_t>& out) {
  const size_t parts = std::min(encoders.size(), held.size() / kLeastPart);
  std::vector<size_t> cuts{0};
  for (size_t k = 1; k <= parts; ++k) {
    if (const size_t cut = last_cut(cuts.back(), held.size() * k / parts)) cuts.push_back(cut);
  }
  if (cuts.size() < 3) return;
  std::vector<std::vector<int32_t>> ids(cuts.size() - 1);
  parallel_tasks(static_cast<int>(encoders.size()), static_cast<int64_t>(ids.size()), [&](int64_t index, int thread) {
    const auto i = static_cast<size_t>(index);
    const auto part = std::string_view(held).substr(cuts[i], cuts[i + 1] - cuts[i]);
    encoders[static_cast<size_t>(thread)]->encode(part, i == 0 ? before_held : Before::kText, ids[i], nullptr);
  });
  for (const std::vector<int32_t>& part : ids) out.insert(out.end(), part.begin(), part.end());
  drop(cuts.back());
}

void StreamEncoder::State::drop(size_t count) {
  held.erase(0, count);
  before_held = Before::kText;
}

// The last place behind `from`, and before the end and not behind `to`, where the text can be cut before white space:
// neither the normalizer nor the pre-tokenizer, nor any token, reaches across. 0 if there is none.
size_t StreamEncoder::State::last_cut(size_t from, size_t to) const {
  const bool plain = tokenizer.plain;
  if (!plain && (holds_spaces || !tokenizer.rules->normalizer.cuts_before_spaces())) return 0;
  constexpr int kTries = 16;
  int tries = 0;
  for (size_t cut = std::min(to + 1, held.size()); --cut > from && tries < kTries;) {
    const char left = held[cut - 1], right = held[cut];
    if ((right != ' ' && right != '\n') || inside_added.contains(left, right)) continue;
    if (plain) {
      if (tokenizer.rules->pretokenizer.is_independent_cut(held, cut)) return cut;
      continue;
    }
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
    encoders[0]->encode_pieces(segment, limit, out);
    from += limit + found.length;
    if (found.length == 0) break;
    out.push_back(found.id);
  }
  held.erase(0, from);
}

StreamEncoder::StreamEncoder(const Tokenizer& tokenizer, SpecialPolicy policy, size_t hold_bytes, int threads)
    : state_(std::make_unique<State>(*tokenizer.state_, policy, hold_bytes, threads)) {
  LOAM_CHECK(threads > 0, "stream encoder: {} threads", threads);
}
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
