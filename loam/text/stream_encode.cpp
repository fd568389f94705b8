#include <algorithm>
#include <atomic>
#include <exception>

#include "loam/base/error.h"
#include "loam/base/parallel_for.h"
#include "loam/text/char_reader.h"
#include "loam/text/tokenizer.h"
#include "loam/text/tokenizer_state.h"

namespace loam {

struct StreamEncoder::State {
  static constexpr size_t kNearBytes = 256;  // in front of a cut, enough for what a character becomes there

  static constexpr size_t kPartBytes = size_t{1} << 14;  // that a thread encodes before it looks for more

  State(const Tokenizer::State& of, const SpecialPolicy& policy, size_t hold, int threads)
      : tokenizer(of), added(of.added(policy)), hold_bytes(hold), wait_until(hold) {
    for (int i = 0; i < threads; ++i)
      encoders.push_back(std::make_unique<TextEncoder>(*of.rules, *of.pieces, added, size_t{1} << 30));
    for (const SpecialToken& s : of.specials) {
      if (!s.always && !policy.allows(s.text)) continue;
      const std::string shown = s.normalized ? of.rules->normalizer.apply(s.text) : s.text;
      const bool prefixed = s.single_word && of.rules->space.prefix != SpaceRule::Prefix::kNever;
      if (s.normalized && (prefixed || shown.find_first_of(" \t\n") != std::string::npos)) holds_spaces = true;
      // White space behind a token may belong to it, or stand where a space is put in front.
      inside_added.add_token(s.text);
      for (const char c : {' ', '\n'}) inside_added.add(s.text.back(), c);
      // One that stands alone needs to see what is in front of it.
      for (int left = 0; s.single_word && left < 256; ++left) inside_added.add(static_cast<char>(left), s.text.front());
    }
  }

  size_t consume(std::string_view text, bool final, std::vector<int32_t>& out);
  size_t consume_parts(std::string_view text, bool final, const IdSink& sink, const std::function<void()>& meanwhile);
  size_t consume_plain(std::string_view text, bool final, std::vector<int32_t>& out);
  size_t last_cut(std::string_view text, size_t from, size_t to) const;
  bool is_cut(std::string_view text, size_t cut) const;

  const Tokenizer::State& tokenizer;
  AddedTokens added;
  std::vector<std::unique_ptr<TextEncoder>> encoders;  // one for each thread
  std::vector<std::vector<int32_t>> part_ids;          // kept for their memory
  NeighbourSet inside_added;
  bool holds_spaces = false;  // of a token that is looked for in normalized text
  std::string held;
  size_t hold_bytes;
  size_t wait_until;                // bytes held before the next attempt
  Before context = Before::kStart;  // what stands before the held text
};

// Encodes what no continuation of `text` can change, or, with `final`, everything; returns how many bytes that was.
size_t StreamEncoder::State::consume(std::string_view text, bool final, std::vector<int32_t>& out) {
  if (tokenizer.plain) return consume_plain(text, final, out);
  const size_t end = final ? text.size() : last_cut(text, 0, text.size());
  if (end == 0) return 0;
  encoders[0]->encode(text.substr(0, end), context, out, nullptr);
  context = Before::kText;
  return end;
}

// Cuts the text into parts, which the threads encode; a rest is left. The calling thread does `meanwhile` first.
size_t StreamEncoder::State::consume_parts(std::string_view text, bool final, const IdSink& sink,
                                           const std::function<void()>& meanwhile) {
  std::vector<size_t> cuts{0};
  for (size_t from = 0; from < text.size(); from += kPartBytes) {  // where none is found, no place is tried twice
    const size_t to = std::min(from + kPartBytes, text.size());
    const size_t cut = final && to == text.size() ? to : last_cut(text, from, to);
    if (cut > 0) cuts.push_back(cut);
  }
  const size_t parts = cuts.size() - 1;
  part_ids.resize(std::max(part_ids.size(), parts));
  std::vector<std::exception_ptr> faults(parts);
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto encode_part = [&](size_t i, int thread) {
    part_ids[i].clear();
    const std::string_view part = text.substr(cuts[i], cuts[i + 1] - cuts[i]);
    encoders[static_cast<size_t>(thread)]->encode(part, i == 0 ? context : Before::kText, part_ids[i], nullptr);
  };
  const auto threads = static_cast<int>(encoders.size());
  parallel_for(threads, threads, 1, [&](int64_t begin, int64_t, int thread) {
    if (begin == 0) meanwhile();
    for (size_t i; !failed && (i = next.fetch_add(1)) < parts;) {
      try {
        encode_part(i, thread);
      } catch (...) {
        faults[i] = std::current_exception();
        failed = true;
      }
    }
  });
  if (parts > 0) context = Before::kText;
  for (size_t i = 0; i < parts; ++i) {  // every part before one that failed was begun
    if (faults[i]) std::rethrow_exception(faults[i]);
    sink(part_ids[i]);
  }
  return cuts.back();
}

// The last place behind `from`, and before the end and not behind `to`, where the text can be cut before white space:
// neither the normalizer nor the pre-tokenizer, nor any token, reaches across. 0 if there is none.
size_t StreamEncoder::State::last_cut(std::string_view text, size_t from, size_t to) const {
  const bool plain = tokenizer.plain;
  if (text.empty()) return 0;
  if (!plain && (holds_spaces || !tokenizer.rules->normalizer.cuts_before_spaces())) return 0;
  constexpr int kTries = 16;
  int tries = 0;
  for (size_t cut = std::min(to + 1, text.size()); --cut > from && tries < kTries;) {
    const char left = text[cut - 1], right = text[cut];
    if ((right != ' ' && right != '\n') || inside_added.contains(left, right)) continue;
    if (plain) {
      if (tokenizer.rules->pretokenizer.is_independent_cut(text, cut)) return cut;
      continue;
    }
    const CharKinds before = read_char(text, char_before(text, cut)).kinds;
    if (!(before & (kLetter | kMark | kNumber | kPunctuation | kSymbol))) continue;
    ++tries;
    if (is_cut(text, cut)) return cut;
  }
  return 0;
}

// Judged by what the pre-tokenizer and the model see: normalized text.
bool StreamEncoder::State::is_cut(std::string_view text, size_t cut) const {
  const TokenizerRules& rules = *tokenizer.rules;
  const std::string near(text.substr(cut > kNearBytes ? cut - kNearBytes : 0, std::min(cut, kNearBytes)));
  const std::string left = rules.normalizer.apply(near), right = rules.normalizer.apply(text.substr(cut, 1));
  if (left.empty() || right.empty() || (read_char(left, char_before(left, left.size())).kinds & kSpace)) return false;
  if (!rules.pretokenizer.splits().empty()) return rules.pretokenizer.is_independent_cut(left + right, left.size());
  const NeighbourSet* neighbours = tokenizer.pieces->neighbours();
  return neighbours && !neighbours->contains(left.back(), right.front());
}

size_t StreamEncoder::State::consume_plain(std::string_view text, bool final, std::vector<int32_t>& out) {
  size_t from = 0;
  while (from < text.size()) {
    const SpecialMatcher::Found found = added.given.find(text, from, from, !final);
    const std::string_view segment = text.substr(from, found.position - from);
    const bool ends = final || found.length > 0;
    const size_t limit = ends ? segment.size() : tokenizer.rules->pretokenizer.stable_prefix(segment);
    encoders[0]->encode_pieces(segment, limit, out);
    from += limit + found.length;
    if (found.length == 0) break;
    out.push_back(found.id);
  }
  return from;
}

StreamEncoder::StreamEncoder(const Tokenizer& tokenizer, SpecialPolicy policy, size_t hold_bytes, int threads)
    : state_(std::make_unique<State>(*tokenizer.state_, policy, hold_bytes, threads)) {
  LOAM_CHECK(threads > 0, "stream encoder: {} threads", threads);
}
StreamEncoder::~StreamEncoder() = default;
StreamEncoder::StreamEncoder(StreamEncoder&&) noexcept = default;
StreamEncoder& StreamEncoder::operator=(StreamEncoder&&) noexcept = default;

void StreamEncoder::push(std::string_view bytes, std::vector<int32_t>& out) {
  State& s = *state_;
  if (s.held.size() + bytes.size() < s.wait_until) {
    s.held.append(bytes);
    return;
  }
  if (s.held.empty()) {
    s.held = bytes.substr(s.consume(bytes, false, out));
  } else {
    s.held.append(bytes);
    s.held.erase(0, s.consume(s.held, false, out));
  }
  // Twice what could not be cut, so that the total work stays linear however long a piece gets.
  s.wait_until = std::max(s.hold_bytes, 2 * s.held.size());
}

size_t StreamEncoder::encode_front(std::string_view text, bool final, const IdSink& sink,
                                   const std::function<void()>& meanwhile) {
  const size_t parts = state_->consume_parts(text, final, sink, meanwhile);
  std::vector<int32_t> ids;
  const size_t rest = state_->consume(text.substr(parts), final, ids);
  sink(ids);
  if (final) state_->context = Before::kStart;
  return parts + rest;
}

void StreamEncoder::finish(std::vector<int32_t>& out) {
  state_->consume(state_->held, true, out);
  state_->held.clear();
  state_->wait_until = state_->hold_bytes;
  state_->context = Before::kStart;
}

}  // namespace loam
