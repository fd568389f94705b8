// What finds the matches of one regular expression: a scanner written for it, or PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace loam {

// A part of a text, in bytes.
struct Piece {
  size_t begin, length;
  size_t end() const { return begin + length; }
};

// Where a text may be cut by looking at two ASCII characters, so that the matches before and the matches from the cut
// on are those of the whole. Each rule includes the ones before it.
enum class CutRule {
  kNever,
  kWordSpace,  // a letter or digit | a space
  kTextSpace,  // no white space | a space, a tab, VT or FF; and a letter or digit | a line end
  kAnySpace,   // no white space | white space
};

// What a scan of one text remembers from match to match, where that keeps it linear.
struct ScanMemo {
  size_t next = 0;  // within a run of digits
  size_t end = 0;   // of that run
  size_t left = 0;  // how many digits are between them
};

// Thread safety: const members may be called from any thread.
class Matcher {
 public:
  virtual ~Matcher() = default;

  // The first match that begins at `from` <= text.size() or later; false if there is none. Every byte that is not valid
  // UTF-8 counts as a character of its own, of no class. `memo` is new for each text, and each call for a text begins
  // at the end of the match before or, after an empty match, one character later.
  virtual bool find(std::string_view text, size_t from, ScanMemo& memo, Piece& match) const = 0;

  // True if the matches cover every text without gaps. Then fill() writes those that begin at `position` or later and
  // before `limit` <= text.size(), as many as fit into `out`, and returns how many.
  virtual bool covers() const { return false; }
  virtual size_t fill(std::string_view, size_t /*position*/, size_t /*limit*/, std::span<Piece> /*out*/) const {
    return 0;
  }

  // The widest rule under which matches can be found on both sides of a cut alone. A gap may span the cut.
  virtual CutRule cut_rule() const { return CutRule::kNever; }
  // True if a match that ends before the last run of letters and marks, numbers, white space or other characters of a
  // text is a match of every continuation of that text as well.
  virtual bool is_local() const { return false; }
  // True if every ASCII letter (digit) is in some match.
  virtual bool takes_letters() const { return covers(); }
  virtual bool takes_digits() const { return covers(); }
  // True if matches never hold anything but ASCII.
  virtual bool is_ascii() const { return false; }
  // True if PCRE2 runs it, which needs valid UTF-8.
  virtual bool needs_utf8() const { return false; }
};

// The scanner that is written for the pattern of this very text; null if there is none.
std::shared_ptr<const Matcher> word_scanner(std::string_view regex);
std::shared_ptr<const Matcher> special_scanner(std::string_view regex);
// A scanner for a regex that is a class of characters, repeated, or alternatives of such; null for any other.
std::shared_ptr<const Matcher> run_scanner(std::string_view regex);
// Any regex, through PCRE2 with Unicode properties, in the dialect of Hugging Face's library (Oniguruma): \s, \d, \w
// and scripts as Unicode defines them, $ before a line end too. Error{kInvalidArgument} with PCRE2's message and the
// offset. find() fails with Error{kInvalidArgument} where the search backtracks more than 10^7 times.
std::shared_ptr<const Matcher> regex_matcher(std::string_view regex);

// The first of these that there is.
std::shared_ptr<const Matcher> make_matcher(std::string_view regex);

}  // namespace loam
