// One scanner for the family of patterns that came from GPT-2's: words with their space, numbers, punctuation, white
// space. What differs between them is known at compile time.
#include "loam/text/char_reader.h"
#include "loam/text/matcher.h"
#include "loam/text/patterns.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <bit>

namespace loam {
namespace {

constexpr size_t kBytesAtOnce = 16;

// Bit i: byte i of kBytesAtOnce is an ASCII letter; with `lower` a small one.
inline uint32_t ascii_letters(const char* bytes, bool lower) {
#ifdef __SSE2__
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  const __m128i any_case = lower ? v : _mm_or_si128(v, _mm_set1_epi8(0x20));
  const __m128i index = _mm_sub_epi8(any_case, _mm_set1_epi8('a'));
  return static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(index, _mm_set1_epi8(25)), index)));
#else
  uint32_t bits = 0;
  for (size_t i = 0; i < kBytesAtOnce; ++i) {
    const CharKinds kinds = kKindsOfByte[static_cast<unsigned char>(bytes[i])];
    bits |= static_cast<uint32_t>((kinds & (lower ? kLower : kLetter)) != 0) << i;
  }
  return bits;
#endif
}

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
    size_t count = 0;
    while (count < out.size() && position < limit) {
      const size_t end = piece_end(text, position);
      out[count++] = {position, end - position};
      position = end;
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

  // The commonest piece: up to 15 ASCII letters, a space in front or not, that end before another ASCII character; in
  // runs by case all but the first are small. kNone for any other.
  static size_t ascii_word_end(std::string_view text, size_t position) {
    if constexpr (R.words == Words::kPhrases) return kNone;
    const size_t begin = position + (text[position] == ' ');
    if (begin + kBytesAtOnce > text.size()) return kNone;
    const char* bytes = text.data() + begin;
    const uint32_t others = ~ascii_letters(bytes, false) & 0xFFFF;
    if ((others & 1) || others == 0) return kNone;
    const int length = std::countr_zero(others);
    const char next = bytes[length];
    if (static_cast<unsigned char>(next) >= 128) return kNone;
    if constexpr (R.words == Words::kCaseRuns) {
      const uint32_t small = ascii_letters(bytes, true) | 1, run = (1u << length) - 1;
      if (length < 2 || (small & run) != run || next == '\'') return kNone;
    }
    return begin + static_cast<size_t>(length);
  }

  static size_t piece_end(std::string_view text, size_t position) {
    if (const size_t end = ascii_word_end(text, position); end != kNone) return end;
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
