// Changing text before it is cut into pieces: the "normalizer" of Hugging Face's library `tokenizers`, with its
// semantics. Characters are those of Unicode 15.0; the library's own tables are of 8.0 and 9.0 for some steps, so it
// leaves newer marks and compatibility characters as they are.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace loam {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;

  bool operator==(const TextRange&) const = default;
};

namespace normal {
// The forms of Unicode Standard Annex 15.
struct UnicodeForm {
  bool compatible = false, composed = true;  // NFC; NFD, NFKC and NFKD
  bool operator==(const UnicodeForm&) const = default;
};
// The full lower-case mapping of each character for itself.
struct Lowercase {
  bool operator==(const Lowercase&) const = default;
};
// Drops the marks: General_Category Mn, Mc and Me.
struct StripAccents {
  bool operator==(const StripAccents&) const = default;
};
// Drops white space at the ends.
struct Strip {
  bool left = true, right = true;
  bool operator==(const Strip&) const = default;
};
// Every match of a regex, or every occurrence of a string.
struct Replace {
  std::string pattern, content;  // a match that holds a byte which is not valid UTF-8 is none
  bool regex = false;
  bool operator==(const Replace&) const = default;
};
// In front of text that is not empty.
struct Prepend {
  std::string text;
  bool operator==(const Prepend&) const = default;
};
// BERT's: control characters dropped and white space made plain, spaces round CJK ideographs, NFD without characters of
// General_Category Mn, lower case; in this order.
struct Bert {
  bool clean_text = true, chinese_chars = true, strip_accents = true, lowercase = true;
  bool operator==(const Bert&) const = default;
};
// SentencePiece's "nmt" rules: some control characters dropped, others made spaces.
struct Nmt {
  bool operator==(const Nmt&) const = default;
};
// SentencePiece's compiled table ("nmt_nfkc", ...): a 32-bit length, a double array of that many bytes that maps
// strings to places, and the replacements there, each ended by a zero byte. Hugging Face's library asks it for grapheme
// clusters of up to five bytes, which become what the shortest string that they begin with becomes, and else for each
// character alone. SentencePiece replaces the longest string of the table wherever it stands.
struct Precompiled {
  std::string table;
  bool longest_match = false;          // as SentencePiece does
  std::vector<std::string> kept = {};  // with longest_match: strings that stay as they are
  bool operator==(const Precompiled&) const = default;
};
}  // namespace normal

using NormalizerStep = std::variant<normal::UnicodeForm, normal::Lowercase, normal::StripAccents, normal::Strip,
                                    normal::Replace, normal::Prepend, normal::Bert, normal::Nmt, normal::Precompiled>;

// A list of steps, one after the other. A byte that is not valid UTF-8 is kept as it is by every step and begins no
// character. A cheap value. Thread safety: const members may be called from any thread.
class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  // Error{kInvalidArgument} for more than 64 steps or a regex that PCRE2 refuses; Error{kBadFormat} for a table whose
  // parts do not fit it.
  explicit Normalizer(std::vector<NormalizerStep> steps);

  bool empty() const { return !state_; }
  const std::vector<NormalizerStep>& steps() const;
  // All that decides the result, in one line of printable characters.
  std::string description() const;

  // Error{kInvalidArgument} for a result of more than 1 MiB and 64 times the bytes of `text`, or where a regex
  // backtracks too much.
  std::string apply(std::string_view text) const;
  // Also says where each byte of the result comes from: a byte that no step changed from itself, the bytes of a changed
  // character from the range of `text` that the character, or the sequence of characters that became it, has there.
  // Ranges begin and end in ascending order. Bytes that are only added (Prepend) come from an empty range.
  std::string apply(std::string_view text, std::vector<TextRange>& origins) const;

  // True if text may be cut between a letter, mark, number, punctuation mark or symbol and an ASCII space or line end,
  // and each part normalized for itself: so a stream can be cut there.
  bool cuts_before_spaces() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace loam
