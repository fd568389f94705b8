// One scanner for the family of patterns that came from GPT-2's: words with their space, numbers, punctuation, white
// space. What differs between them is known at compile time.
#include "loam/text/char_reader.h"
#include "loam/text/matcher.h"
#include "loam/text/patterns.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "loam/text/ascii_block.h"

namespace loam {
namespace {

enum class Words {
  kLetters,    // \p{L}+
  kWithMarks,  // [\p{L}\p{M}]+
  kCaseRuns,   // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ or, failing that, + before and * after
  kPhrases,    // (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+
};
enum class Contractions { kNone, kOwnPiece, kOwnPieceAnyCase, kAfterWordAnyCase };  // 's 't 're 've 'm 'll 'd
enum class Tail { kNone, kNewlines, kNewlinesAndSlashes, kOneNewlineOrSlash };      // what follows punctuation

struct WordRules {
  Words words = Words::kLetters;
  Contractions contractions = Contractions::kOwnPieceAnyCase;
  bool any_prefix = true;  // [^\r\n\p{L}\p{N}]? before a word; otherwise " ?", before numbers as well
  bool han_apart = false;  // Han characters are words of their own and in no other
  size_t most_digits = 3;  // 0: any number
  Tail tail = Tail::kNewlines;
  bool newlines = true;          // \s*[\r\n]+
  bool whole_blank_end = false;  // \s++$
};

template <WordRules R>
class WordScanner final : public Matcher {
 public:
  bool covers() const override { return true; }
  bool is_local() const override { return true; }
  CutRule cut_rule() const override {
    if (R.words == Words::kPhrases) return CutRule::kNever;
    return R.tail == Tail::kNone ? CutRule::kAnySpace : CutRule::kTextSpace;
  }

  bool find(std::string_view text, size_t from, ScanMemo&, Piece& match) const override {
    if (from >= text.size()) return false;
    match = {from, piece_end(text, from) - from};
    return true;
  }

  size_t fill(std::string_view text, size_t position, size_t limit, std::span<Piece> out) const override {
    // Where ASCII is rare, blocks are tried less and less often.
    size_t count = 0, wait = 0, by_character = 0;
    while (count < out.size() && position < limit) {
      if (by_character == 0) {
        if (const size_t found = fill_from_block(text, position, limit, out.subspan(count))) {
          count += found;
          position = out[count - 1].end();
          wait = 0;
          continue;
        }
        wait = std::min<size_t>(2 * wait + 1, 31);
        by_character = wait;
      }
      const size_t end = piece_end(text, position);
      out[count++] = {position, end - position};
      position = end;
      --by_character;
    }
    return count;
  }

 private:
  static constexpr CharKinds kInWord = R.words == Words::kLetters ? kLetter : kLetter | kMark;
  static constexpr CharKinds kInPunctuation =
      kPunctuation | kSymbol | kNothing | (R.words == Words::kWithMarks ? 0 : kMark);
  static constexpr CharKinds kUpperRun = kUpper | kCaseless | kMark;
  static constexpr CharKinds kLowerRun = kLower | kCaseless | kMark;
  static constexpr size_t kNone = std::string_view::npos;

  static bool is(CharKinds kinds, CharKinds wanted) { return (kinds & wanted) && !(R.han_apart && (kinds & kHan)); }

  // The length of 's, 't, 're, 've, 'm, 'll or 'd at `position`; 0 if none of them stands there.
  static size_t contraction(std::string_view text, size_t position) {
    if (position + 1 >= text.size() || text[position] != '\'') return 0;
    constexpr bool kAnyCase = R.contractions != Contractions::kOwnPiece;
    const auto letter = [&](size_t i) -> char {
      if (i >= text.size()) return 0;
      const char c = text[i];
      return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char a = letter(position + 1), b = letter(position + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    // The one other character that is one of these letters but for case.
    if (kAnyCase && text.substr(position + 1).starts_with("\u017F")) return 3;
    return 0;
  }

  // The end of letters whose case rises at most once; kNone if they do not start here. With `lower`, one that is lower
  // or has no case is among them.
  static size_t case_run(std::string_view text, size_t position, bool lower) {
    size_t end = position, caseless_end = kNone;
    while (end < text.size()) {
      const KnownChar c = read_char(text, end);
      if (!is(c.kinds, kUpperRun)) {
        if (!is(c.kinds, kLower) || (!lower && end == position)) break;
        while (end < text.size()) {
          const KnownChar d = read_char(text, end);
          if (!is(d.kinds, kLowerRun)) break;
          end += d.length;
        }
        return end;
      }
      end += c.length;
      if (!(c.kinds & kUpper)) caseless_end = end;
    }
    if (lower) return caseless_end;
    return end > position ? end : kNone;
  }

  static size_t phrase_end(std::string_view text, size_t position) {
    while (position < text.size()) {
      const KnownChar c = read_char(text, position);
      if (c.kinds & kLetter) {
        position = run_end(text, position + c.length, kMark);
      } else if (text[position] == ' ' && position + 1 < text.size() &&
                 (read_char(text, position + 1).kinds & kLetter)) {
        ++position;
      } else {
        break;
      }
    }
    return position;
  }

  // The end of a word with what may stand before it; kNone if there is none here.
  static size_t word_end(std::string_view text, size_t position, KnownChar first) {
    const size_t after = position + first.length;
    const bool prefix = !(first.kinds & (kLetter | kNumber | kNewline)) && after < text.size();
    if constexpr (R.words == Words::kCaseRuns) {
      size_t end = kNone;
      for (const bool lower : {true, false}) {
        if (prefix) end = case_run(text, after, lower);
        if (end == kNone && is(first.kinds, kLetter | kMark)) end = case_run(text, position, lower);
        if (end != kNone) break;
      }
      if (end == kNone || R.contractions != Contractions::kAfterWordAnyCase) return end;
      return end + contraction(text, end);
    } else if constexpr (R.words == Words::kPhrases) {
      if (first.kinds & kLetter) return phrase_end(text, position);
      if (prefix && (read_char(text, after).kinds & kLetter)) return phrase_end(text, after);
      return kNone;
    } else {
      if (first.kinds & kInWord) return run_end(text, after, kInWord);
      if (!prefix) return kNone;
      const KnownChar next = read_char(text, after);
      return next.kinds & kInWord ? run_end(text, after + next.length, kInWord) : kNone;
    }
  }

  static size_t number_end(std::string_view text, size_t position) {
    if (R.most_digits == 0) return run_end(text, position, kNumber);
    for (size_t i = 0; i < R.most_digits && position < text.size(); ++i) {
      const KnownChar c = read_char(text, position);
      if (!(c.kinds & kNumber)) break;
      position += c.length;
    }
    return position;
  }

  static size_t punctuation_end(std::string_view text, size_t position) {
    size_t end = run_end(text, position, kInPunctuation);
    const auto in_tail = [&] {
      if (end == text.size() || R.tail == Tail::kNone) return false;
      const char c = text[end];
      return c == '\r' || c == '\n' || (R.tail != Tail::kNewlines && c == '/');
    };
    while (in_tail()) {
      ++end;
      if (R.tail == Tail::kOneNewlineOrSlash) break;
    }
    return end;
  }

  static size_t blank_end(std::string_view text, size_t position) {
    const BlankRun run = read_blanks(text, position);
    if (R.whole_blank_end && run.end == text.size()) return run.end;
    if (R.newlines && run.line_end > position) return run.line_end;
    return run.given_end(text, position);
  }

  // The pieces at `position` that can be told from the next AsciiBlock::kBytes alone.
  static size_t fill_from_block(std::string_view text, size_t position, size_t limit, std::span<Piece> out) {
    if constexpr (R.words == Words::kPhrases) return 0;
    std::array<char, AsciiBlock::kBytes> padded;
    const char* bytes = text.data() + position;
    if (const size_t left = text.size() - position; left < AsciiBlock::kBytes) {
      padded.fill('\x80');
      std::memcpy(padded.data(), bytes, left);
      bytes = padded.data();
    }
    size_t count = 0, begin = position;
    for (uint64_t starts = starts_in(AsciiBlock::read(bytes), bytes); starts != 0; starts &= starts - 1) {
      if (count == out.size() || begin >= limit) break;
      const size_t end = position + static_cast<size_t>(std::countr_zero(starts));
      out[count++] = {begin, end - begin};
      begin = end;
    }
    return count;
  }

  // The places below `count`.
  static constexpr uint64_t below(size_t count) { return count < 64 ? (uint64_t{1} << count) - 1 : ~uint64_t{0}; }

  // Where pieces begin in a block that begins with one, the first place left out; only those that nothing behind the
  // block can change. A place is judged by its neighbours: each set is shifted by one to stand beside the next or the
  // one before.
  static uint64_t starts_in(const AsciiBlock& block, const char* bytes) {
    const uint64_t letters = block.letters, digits = block.digits, blanks = block.blanks, newlines = block.newlines;
    const uint64_t white = blanks | newlines, marks = ~(letters | digits | white | block.foreign);
    const size_t known = static_cast<size_t>(std::countr_zero(block.foreign));
    // Every place needs the one behind it; an apostrophe in a word, two.
    constexpr size_t kNeeded = R.contractions == Contractions::kAfterWordAnyCase ? 2 : 1;
    size_t sure = std::max(known, kNeeded) - kNeeded;
    const uint64_t after_space = block.spaces << 1;
    const uint64_t first_marks = marks & ~(marks << 1), free_marks = first_marks & ~after_space;
    const uint64_t first_letters = letters & ~(letters << 1), first_digits = digits & ~(digits << 1);
    const uint64_t last_white = white & ~(white >> 1);
    uint64_t starts = free_marks;
    if constexpr (!R.any_prefix) {
      starts |= (first_letters | first_digits) & ~after_space;
      starts |= (white & ~(white << 1)) | last_white;
    } else {
      starts |= (first_letters & ~((blanks | free_marks) << 1)) | first_digits;
      if constexpr (R.most_digits > 0) starts |= digit_starts(digits, first_digits);
      // Line ends that belong to the marks before them: the carry of the sum runs through each such row.
      const uint64_t tails = R.tail == Tail::kNone ? 0 : newlines & ~(newlines + (newlines & marks << 1));
      const uint64_t own_white = white & ~tails;
      starts |= (own_white & ~(own_white << 1)) | (blanks & newlines << 1) | (blanks & last_white);
      // White space up to a line end is one piece, so what is inside depends on what comes.
      if (const uint64_t inner = newlines & blanks << 1)
        sure = std::min(sure, row_begin(white, std::countr_zero(inner)) + 1);
      if (known > 0 && (white >> (known - 1) & 1)) sure = std::min(sure, row_begin(white, known) + 1);
      if constexpr (R.tail == Tail::kNewlinesAndSlashes) {
        if (const uint64_t longer = tails << 1 & block.slashes) sure = std::min<size_t>(sure, std::countr_zero(longer));
      }
    }
    if constexpr (R.words == Words::kCaseRuns) starts |= letters & ~block.small & block.small << 1;
    if constexpr (R.contractions != Contractions::kNone) {
      const bool after_word = R.contractions == Contractions::kAfterWordAnyCase;
      const uint64_t places = block.apostrophes & (after_word ? letters << 1 : free_marks) & letters >> 1 & below(sure);
      if (places) starts = with_contractions(starts, places, letters, {bytes, known});
    }
    return starts & below(sure) & ~uint64_t{1};
  }

  // Where the row of places before `end` begins.
  static size_t row_begin(uint64_t set, size_t end) {
    return 64 - static_cast<size_t>(std::countl_zero(~set & below(end)));
  }

  // Every R.most_digits places from the first of each row on.
  static uint64_t digit_starts(uint64_t digits, uint64_t first) {
    if constexpr (R.most_digits == 1) return digits;
    uint64_t starts = first;
    for (uint64_t next = first; next != 0; starts |= next) {
      for (size_t i = 0; i < R.most_digits; ++i) next = next << 1 & digits;
    }
    return starts;
  }

  // `places`: apostrophes before a letter, at the beginning of a piece or behind a word.
  static uint64_t with_contractions(uint64_t starts, uint64_t places, uint64_t letters, std::string_view bytes) {
    constexpr bool kAfterWord = R.contractions == Contractions::kAfterWordAnyCase;
    for (size_t end = 0; places != 0; places &= places - 1) {
      const size_t at = static_cast<size_t>(std::countr_zero(places)), length = contraction(bytes, at);
      if (length == 0 || (kAfterWord && at == end && end > 0)) continue;
      end = at + length;
      starts &= ~(below(end) & ~below(at + !kAfterWord));
      if (end < 64) starts |= letters & uint64_t{1} << end;
    }
    return starts;
  }

  static size_t piece_end(std::string_view text, size_t position) {
    const KnownChar first = read_char(text, position);
    if (R.han_apart && (first.kinds & kHan)) return run_end(text, position, kHan);
    if (R.contractions == Contractions::kOwnPiece || R.contractions == Contractions::kOwnPieceAnyCase) {
      if (const size_t length = contraction(text, position)) return position + length;
    }
    if constexpr (!R.any_prefix) {
      const bool space = text[position] == ' ' && position + 1 < text.size();
      const KnownChar body = space ? read_char(text, position + 1) : first;
      const size_t after = position + space + body.length;
      if (body.kinds & kLetter) return run_end(text, after, kLetter);
      if (body.kinds & kNumber) return run_end(text, after, kNumber);
      if (!(body.kinds & kSpace)) return punctuation_end(text, after);
      return blank_end(text, position);
    } else {
      if (const size_t end = word_end(text, position, first); end != kNone) return end;
      if (first.kinds & kNumber) return number_end(text, position);
      if (first.kinds & kInPunctuation) return punctuation_end(text, position);
      const bool space = text[position] == ' ' && position + 1 < text.size();
      if (space && (read_char(text, position + 1).kinds & kInPunctuation)) return punctuation_end(text, position + 1);
      return blank_end(text, position);
    }
  }
};

using Maker = std::shared_ptr<const Matcher> (*)();

template <WordRules R>
std::shared_ptr<const Matcher> make() {
  static const auto scanner = std::make_shared<const WordScanner<R>>();
  return scanner;
}

constexpr WordRules kGpt2{
    .contractions = Contractions::kOwnPiece, .any_prefix = false, .tail = Tail::kNone, .newlines = false};
constexpr WordRules kLlama3{};
constexpr WordRules kCl100k{.whole_blank_end = true};
constexpr WordRules kCl100kByTiktoken{.most_digits = 0, .whole_blank_end = true};
constexpr WordRules kQwen2{.most_digits = 1};
constexpr WordRules kQwen35{.words = Words::kWithMarks, .most_digits = 1};
constexpr WordRules kMiniCpm5{.most_digits = 0};
constexpr WordRules kSeedCoder{.most_digits = 1, .tail = Tail::kNone};
constexpr WordRules kExaoneMoe{.words = Words::kPhrases, .most_digits = 1, .tail = Tail::kOneNewlineOrSlash};
constexpr WordRules kO200k{
    .words = Words::kCaseRuns, .contractions = Contractions::kAfterWordAnyCase, .tail = Tail::kNewlinesAndSlashes};
constexpr WordRules kYoutu{.words = Words::kCaseRuns,
                           .contractions = Contractions::kAfterWordAnyCase,
                           .most_digits = 1,
                           .tail = Tail::kNewlinesAndSlashes};
constexpr WordRules kTekken{.words = Words::kCaseRuns,
                            .contractions = Contractions::kNone,
                            .most_digits = 1,
                            .tail = Tail::kNewlinesAndSlashes};
constexpr WordRules kKimi{
    .words = Words::kCaseRuns, .contractions = Contractions::kAfterWordAnyCase, .han_apart = true};

struct Known {
  std::string_view regex;
  Maker maker;
};

constexpr Known kKnown[] = {
    {patterns::kGpt2, make<kGpt2>},
    {patterns::kGpt2ByTiktoken, make<kGpt2>},
    {patterns::kLlama3, make<kLlama3>},
    {patterns::kCl100k, make<kCl100k>},
    {patterns::kCl100kByTiktoken, make<kCl100kByTiktoken>},
    {patterns::kCl100kPossessive, make<kLlama3>},
    {patterns::kQwen2, make<kQwen2>},
    {patterns::kBailingMoe, make<kQwen2>},
    {patterns::kQwen35, make<kQwen35>},
    {patterns::kMiniCpm5, make<kMiniCpm5>},
    {patterns::kSeedCoder, make<kSeedCoder>},
    {patterns::kExaoneMoe, make<kExaoneMoe>},
    {patterns::kO200k, make<kO200k>},
    {patterns::kYoutu, make<kYoutu>},
    {patterns::kTekken, make<kTekken>},
    {patterns::kKimi, make<kKimi>},
};

}  // namespace

std::shared_ptr<const Matcher> word_scanner(std::string_view regex) {
  for (const Known& known : kKnown) {
    if (known.regex == regex) return known.maker();
  }
  return nullptr;
}

}  // namespace loam
