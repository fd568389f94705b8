#include <algorithm>

#include "loam/text/tokenizer.h"
#include "loam/text/tokenizer_state.h"

namespace loam {

struct StreamEncoder::State {
  State(const Tokenizer::State& tokenizer, const SpecialPolicy& policy, size_t hold)
      : tables(tokenizer.tables),
        matcher(tokenizer.matcher(policy)),
        encoder(tokenizer.tables, size_t{1} << 30),
        hold_bytes(hold),
        wait_until(hold) {}

  void consume(bool final, std::vector<int32_t>& out);

  const EncodeTables& tables;
  SpecialMatcher matcher;
  Encoder encoder;
  std::string held;
  size_t hold_bytes;
  size_t wait_until;     // bytes held before the next attempt
  bool at_start = true;  // nothing encoded since the beginning or the last special token
};

// Encodes what no continuation can change, or, with `final`, everything.
void StreamEncoder::State::consume(bool final, std::vector<int32_t>& out) {
  const std::string_view text = held;
  size_t from = 0;
  while (from < text.size()) {
    const SpecialMatcher::Found found = matcher.find(text, from, !final);
    const std::string_view segment = text.substr(from, found.position - from);
    const bool ends = final || found.length > 0;
    const size_t limit = ends ? segment.size() : tables.stable_prefix(segment);
    encoder.encode(segment, limit, at_start, out);
    if (limit > 0) at_start = false;
    from += limit + found.length;
    if (found.length == 0) break;
    out.push_back(found.id);
    at_start = true;
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
  state_->at_start = true;
}

}  // namespace loam
