// Scanners for single patterns of single models.
#include <algorithm>

#include "loam/text/char_reader.h"
#include "loam/text/matcher.h"
#include "loam/text/patterns.h"

namespace loam {
namespace {

// Signs before ASCII words, words with marks, signs, white space. Nothing matches a number or a control character
// alone.
class SignWordScanner final : public Matcher {
 public:
  CutRule cut_rule() const override { return CutRule::kTextSpace; }
  bool is_local() const override { return true; }
  bool takes_letters() const override { return true; }

  bool find(std::string_view text, size_t from, ScanMemo&, Piece& match) const override {
    for (size_t begin = from; begin < text.size(); begin += read_char(text, begin).length) {
      const size_t end = match_end(text, begin);
      if (end == begin) continue;
      match = {begin, end - begin};
      return true;
    }
    return false;
  }

 private:
  static constexpr CharKinds kWord = kLetter | kMark;
  static constexpr CharKinds kSign = kPunctuation | kSymbol;

  static size_t ascii_word_end(std::string_view text, size_t position) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    while (position < text.size() && letter(text[position])) ++position;
    return position;
  }

  static size_t match_end(std::string_view text, size_t begin) {
    const KnownChar first = read_char(text, begin);
    const size_t after = begin + first.length;
    const KnownChar next = after < text.size() ? read_char(text, after) : KnownChar{0, 0};
    if ((first.kinds & kSign) && first.length == 1) {
      if (const size_t end = ascii_word_end(text, after); end > after) return end;
    }
    if (!(first.kinds & (kNewline | kLetter | kSign)) && (next.kinds & kWord)) return run_end(text, after, kWord);
    if (first.kinds & kWord) return run_end(text, after, kWord);
    if ((first.kinds & kSign) || (text[begin] == ' ' && (next.kinds & kSign))) {
      return run_end(text, run_end(text, after, kSign), kNewline);
    }
    if (!(first.kinds & kSpace)) return begin;
    const BlankRun run = read_blanks(text, begin);
    return run.line_end > begin ? run.line_end : run.given_end(text, begin);
  }
};

// Digits in threes, counted from the end of their run.
struct GroupRules {
  bool all_numbers = false;      // \p{N}; otherwise \d
  bool before_boundary = false;  // only where no word character follows the run
  bool empty = false;            // matches the empty string before each whole group
};

template <GroupRules R>
class DigitGroupScanner final : public Matcher {
 public:
  CutRule cut_rule() const override { return CutRule::kAnySpace; }
  bool is_local() const override { return true; }
  bool takes_digits() const override { return R.all_numbers; }

  bool find(std::string_view text, size_t from, ScanMemo& memo, Piece& match) const override {
    while (memo.left > 0 || find_run(text, from, memo)) {
      const size_t group = memo.left % 3 == 0 ? 3 : memo.left % 3;
      const size_t begin = memo.next;
      for (size_t i = 0; i < group; ++i) memo.next += read_char(text, memo.next).length;
      memo.left -= group;
      match = {begin, R.empty ? 0 : memo.next - begin};
      if (!R.empty || group == 3) return true;
    }
    return false;
  }

 private:
  static bool find_run(std::string_view text, size_t from, ScanMemo& memo) {
    for (size_t i = std::max(from, memo.end); i < text.size(); i = memo.end) {
      memo = {i, i, 0};
      while (memo.end < text.size() && is_digit(text, memo.end)) {
        memo.end += read_char(text, memo.end).length;
        ++memo.left;
      }
      if (memo.left == 0) memo.end += read_char(text, i).length;
      if (R.before_boundary && memo.end < text.size() && is_word(text, memo.end)) memo.left = 0;
      if (memo.left > 0) return true;
    }
    return false;
  }

  static CharProperties properties(std::string_view text, size_t i) {
    const uint32_t byte = static_cast<unsigned char>(text[i]);
    return CharProperties::of(byte < 128 ? byte : read_code_point(text, i).value);
  }
  static bool is_digit(std::string_view text, size_t i) {
    if (R.all_numbers) return read_char(text, i).kinds & kNumber;
    return properties(text, i).category() == Category::kNd;
  }
  // \b of Oniguruma: no other numbers than digits, but for those of Latin-1.
  static bool is_word(std::string_view text, size_t i) {
    const CharProperties p = properties(text, i);
    const KnownChar c = read_char(text, i);
    return p.alphabetic() || p.category() == Category::kPc || p.category() == Category::kNd || (c.kinds & kMark) ||
           ((c.kinds & kNumber) && c.length == 2 && static_cast<unsigned char>(text[i]) == 0xC2);
  }
};

}  // namespace

std::shared_ptr<const Matcher> special_scanner(std::string_view regex) {
  if (regex == patterns::kDeepSeekWords) return std::make_shared<SignWordScanner>();
  if (regex == patterns::kDigitGroups) {
    return std::make_shared<DigitGroupScanner<GroupRules{.before_boundary = true}>>();
  }
  if (regex == patterns::kDigitGroupCuts) return std::make_shared<DigitGroupScanner<GroupRules{.empty = true}>>();
  if (regex == patterns::kNumberGroups) return std::make_shared<DigitGroupScanner<GroupRules{.all_numbers = true}>>();
  return nullptr;
}

}  // namespace loam
