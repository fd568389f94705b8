#include "loam/text/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "loam/base/error.h"
#include "loam/text/char_reader.h"
#include "loam/text/patterns.h"

namespace loam {
namespace {

constexpr size_t kMostSplits = 64;
constexpr char kInvalidAs = 0x7F;        // what a regex sees for a byte that is not valid UTF-8
constexpr size_t kContractionBytes = 4;  // of the longest, 'll or 's with a long s

// The kinds of characters whose runs stable_prefix() looks at.
CharKinds run_of(CharKinds kinds) {
  for (const CharKinds group : {CharKinds{kLetter | kMark}, kNumber, kSpace}) {
    if (kinds & group) return group;
  }
  return kPunctuation | kSymbol | kNothing;
}

// Where the last run of characters of one kind begins, those of the last few bytes left out.
size_t last_run(std::string_view text) {
  if (text.size() <= kContractionBytes) return 0;
  size_t position = text.size() - kContractionBytes;
  while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80) --position;
  CharKinds run = 0;
  while (position > 0) {
    const size_t before = char_before(text, position);
    const CharKinds kinds = read_char(text, before).kinds;
    if (run == 0) run = run_of(kinds);
    if (!(kinds & run)) break;
    position = before;
  }
  return position;
}

// `text` with DEL for every byte that is not valid UTF-8; "" if there is none.
std::string made_valid(std::string_view text) {
  std::string valid;
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 128) {
      ++i;
      continue;
    }
    const CodePoint c = read_code_point(text, i);
    if (c.value == kNoCodePoint) {
      if (valid.empty()) valid = text;
      valid[i] = kInvalidAs;
    }
    i += c.length;
  }
  return valid;
}

std::string_view behavior_name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return "isolated";
    case SplitBehavior::kRemoved:
      return "removed";
    case SplitBehavior::kMergedWithPrevious:
      return "merged with previous";
    case SplitBehavior::kMergedWithNext:
      return "merged with next";
    case SplitBehavior::kContiguous:
      return "contiguous";
  }
  return "";
}

}  // namespace

struct Pretokenizer::State {
  explicit State(std::vector<Split> given);
  CutRule find_cut_rule() const;

  std::vector<Split> splits;
  std::vector<std::shared_ptr<const Matcher>> matchers;
  bool local = true;        // every split is isolated or removed, and its matcher local
  bool needs_utf8 = false;  // of any
  bool fills = false;       // the last split gives all of its text as matches, each a piece
  CutRule cut_rule = CutRule::kNever;
};

Pretokenizer::State::State(std::vector<Split> given) : splits(std::move(given)) {
  LOAM_CHECK(splits.size() <= kMostSplits, "pre-tokenizer: {} splits, more than {}", splits.size(), kMostSplits);
  for (const Split& split : splits) {
    matchers.push_back(make_matcher(split.regex));
    const bool keeps_cuts = split.behavior == SplitBehavior::kIsolated || split.behavior == SplitBehavior::kRemoved;
    local = local && keeps_cuts && matchers.back()->is_local();
    needs_utf8 = needs_utf8 || matchers.back()->needs_utf8();
  }
  fills = !splits.empty() && splits.back().behavior == SplitBehavior::kIsolated && matchers.back()->covers();
  cut_rule = find_cut_rule();
}

// The strictest rule of all matchers. A gap between matches may span a cut, so some matcher must take what stands
// before the cut: the white space after it is then in no match with it.
CutRule Pretokenizer::State::find_cut_rule() const {
  if (!local) return CutRule::kNever;
  CutRule rule = CutRule::kAnySpace;
  bool letters = false, digits = false, all = false;
  for (const auto& matcher : matchers) {
    rule = std::min(rule, matcher->cut_rule());
    letters = letters || matcher->takes_letters();
    digits = digits || matcher->takes_digits();
    all = all || matcher->covers();
  }
  if (!all) rule = std::min(rule, CutRule::kWordSpace);
  return letters && digits ? rule : CutRule::kNever;
}

Pretokenizer::Pretokenizer(std::vector<Split> splits) : state_(std::make_shared<State>(std::move(splits))) {}

Pretokenizer Pretokenizer::gpt2() {
  static const Pretokenizer gpt2({Split{std::string(patterns::kGpt2)}});
  return gpt2;
}

const std::vector<Split>& Pretokenizer::splits() const { return state_->splits; }

std::string Pretokenizer::description() const {
  if (splits() == gpt2().splits()) return "gpt2";
  std::string text;
  for (const Split& split : splits()) {
    text += fmt::format("{}{}{} {}", text.empty() ? "" : " ", split.invert ? "not " : "", behavior_name(split.behavior),
                        split.regex);
  }
  return text;
}

bool Pretokenizer::is_independent_cut(std::string_view text, size_t position) const {
  const auto kinds = [&](size_t i) { return kKindsOfByte[static_cast<unsigned char>(text[i])]; };
  const CharKinds before = kinds(position - 1), after = kinds(position);
  if (before == 0 || (before & kSpace) || !(after & kSpace)) return false;
  switch (state_->cut_rule) {
    case CutRule::kNever:
      return false;
    case CutRule::kWordSpace:
      return (before & (kLetter | kNumber)) && text[position] == ' ';
    case CutRule::kTextSpace:
      return (before & (kLetter | kNumber)) || (after & kBlank);
    case CutRule::kAnySpace:
      return true;
  }
  return false;
}

size_t Pretokenizer::stable_prefix(std::string_view text) const {
  if (!state_->local) return 0;
  const std::string_view whole = text.substr(0, text.size() - incomplete_utf8_suffix(text));
  size_t stable = 0;
  for (size_t cut = whole.size(); cut-- > 1;) {
    if (is_independent_cut(whole, cut)) {
      stable = cut;
      break;
    }
  }
  const size_t end = last_run(whole);
  if (end <= stable) return stable;
  const size_t from = stable;
  PieceCursor cursor(*this, whole.substr(from), end - from);
  std::array<Piece, 64> pieces;
  while (const size_t count = cursor.next(pieces)) {
    for (size_t i = 0; i < count; ++i) {
      if (from + pieces[i].end() >= end) return stable;
      stable = from + pieces[i].end();
    }
  }
  return stable;
}

// One split at work on one piece of the split before it.
class PieceCursor::Stage {
 public:
  Stage(const Matcher& matcher, const Split& split)
      : matcher_(&matcher), behavior_(split.behavior), invert_(split.invert) {}

  void start(std::string_view text, size_t base) {
    text_ = text;
    base_ = base;
    position_ = search_ = 0;
    last_end_ = std::string_view::npos;
    found_ = peeked_ = false;
    memo_ = {};
  }

  bool next(Piece& piece) {
    Item item;
    while (take(item)) {
      if (behavior_ == SplitBehavior::kRemoved && item.match) continue;
      Item after;
      while (joins(item, after)) {
        item.end = after.end;
        peeked_ = false;
        if (behavior_ != SplitBehavior::kContiguous) break;
      }
      if (item.end == item.begin) continue;
      piece = {base_ + item.begin, item.end - item.begin};
      return true;
    }
    return false;
  }

 private:
  struct Item {
    size_t begin, end;
    bool match;
  };

  bool joins(const Item& item, Item& after) {
    switch (behavior_) {
      case SplitBehavior::kIsolated:
      case SplitBehavior::kRemoved:
        return false;
      case SplitBehavior::kMergedWithPrevious:
        return !item.match && peek(after) && after.match;
      case SplitBehavior::kMergedWithNext:
        return item.match && peek(after) && !after.match;
      case SplitBehavior::kContiguous:
        return peek(after) && after.match == item.match;
    }
    return false;
  }

  bool peek(Item& item) {
    if (!peeked_) peeked_ = read(peek_);
    item = peek_;
    return peeked_;
  }
  bool take(Item& item) {
    if (!peeked_) return read(item);
    item = peek_;
    peeked_ = false;
    return true;
  }

  // The next match or part between matches.
  bool read(Item& item) {
    if (position_ == text_.size()) return false;
    if (!found_ && !find()) match_ = {text_.size(), 0};
    found_ = match_.begin > position_;
    item = found_ ? Item{position_, match_.begin, invert_} : Item{match_.begin, match_.end(), !invert_};
    position_ = item.end;
    return true;
  }

  // An empty match where the match before it ended is passed over.
  bool find() {
    while (search_ <= text_.size() && matcher_->find(text_, search_, memo_, match_)) {
      if (match_.length > 0 || match_.begin != last_end_) {
        search_ = last_end_ = match_.end();
        return true;
      }
      if (search_ == text_.size()) return false;
      search_ += read_char(text_, search_).length;
    }
    return false;
  }

  const Matcher* matcher_;
  SplitBehavior behavior_;
  bool invert_;
  std::string_view text_;
  size_t base_ = 0;
  size_t position_ = 0, search_ = 0, last_end_ = 0;
  Piece match_{0, 0};
  bool found_ = false, peeked_ = false;  // match_ and peek_ are still to be given
  Item peek_{0, 0, false};
  ScanMemo memo_;
};

PieceCursor::PieceCursor(const Pretokenizer& pretokenizer, std::string_view text, size_t limit)
    : state_(pretokenizer.state_), text_(text), limit_(std::min(limit, text.size())) {
  if (state_->needs_utf8) valid_ = made_valid(text);
  if (!valid_.empty()) text_ = valid_;
  const size_t stages = state_->splits.size() - state_->fills;
  stages_.reserve(stages);
  for (size_t i = 0; i < stages; ++i) {
    stages_.emplace_back(*state_->matchers[i], state_->splits[i]);
    stages_.back().start({}, 0);
  }
  if (state_->fills && stages == 0) region_ = {0, text.size()};
}

PieceCursor::~PieceCursor() = default;

size_t PieceCursor::next(std::span<Piece> out) {
  if (state_->fills && stages_.empty()) {
    const size_t count = state_->matchers.back()->fill(text_, position_, limit_, out);
    if (count > 0) position_ = out[count - 1].end();
    return count;
  }
  if (state_->fills) return fill_regions(out);
  size_t count = 0;
  while (count < out.size() && pull(stages_.size(), out[count]) && out[count].begin < limit_) ++count;
  return count;
}

// The next piece of the first `depth` splits.
bool PieceCursor::pull(size_t depth, Piece& piece) {
  if (depth == 0) {
    if (position_ >= limit_) return false;
    piece = {0, text_.size()};
    position_ = text_.size();
    return true;
  }
  Stage& stage = stages_[depth - 1];
  while (!stage.next(piece)) {
    Piece region;
    if (!pull(depth - 1, region)) return false;
    stage.start(text_.substr(region.begin, region.length), region.begin);
  }
  return true;
}

size_t PieceCursor::fill_regions(std::span<Piece> out) {
  size_t count = 0;
  while (count < out.size()) {
    if (filled_ == region_.length) {
      if (!pull(stages_.size(), region_) || region_.begin >= limit_) return count;
      filled_ = 0;
    }
    const std::string_view text = text_.substr(region_.begin, region_.length);
    const size_t limit = std::min(text.size(), limit_ - region_.begin);
    if (filled_ >= limit) return count;
    const size_t added = state_->matchers.back()->fill(text, filled_, limit, out.subspan(count));
    for (Piece& piece : out.subspan(count, added)) {
      filled_ = piece.end();
      piece.begin += region_.begin;
    }
    count += added;
  }
  return count;
}

}  // namespace loam
