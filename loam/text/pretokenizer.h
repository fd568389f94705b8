// Cutting text into the pieces inside which byte pairs may merge.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loam/text/matcher.h"

namespace loam {

// What becomes of the matches of a regex and of the parts between them, as in Hugging Face's library `tokenizers`.
enum class SplitBehavior {
  kIsolated,            // each match and each part between is a piece
  kRemoved,             // matches are dropped
  kMergedWithPrevious,  // a match joins the part before it
  kMergedWithNext,      // a match joins the part after it
  kContiguous,          // matches that touch are one piece
};

struct Split {
  std::string regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the parts between are what counts as matches

  bool operator==(const Split&) const = default;
};

// A list of splits, each of which cuts the pieces of the one before it; without any, a text is one piece. No piece is
// empty. Every byte that is not valid UTF-8 counts as a character of its own, of no class. Patterns that are well known
// have scanners that take linear time; any other regex runs on PCRE2 (see regex_matcher()). A cheap value.
// Thread safety: const members may be called from any thread.
class Pretokenizer {
 public:
  Pretokenizer() : Pretokenizer(gpt2()) {}
  // Error{kInvalidArgument} for more than 64 splits or for a regex that PCRE2 refuses.
  explicit Pretokenizer(std::vector<Split> splits);
  static Pretokenizer gpt2();

  const std::vector<Split>& splits() const;
  // A name under which parse_pretokenizer() knows these splits; "" if there is none.
  std::string name() const;
  // All that decides pieces, in one line; the name "gpt2" for GPT-2's pattern.
  std::string description() const;

  // How many bytes at the front of `text` are pieces that no continuation of the text can change. Used to cut a stream:
  // the rest is held back. These are the pieces before the last independent cut, and those that end before the last
  // run of letters, numbers, white space or other characters but for four bytes. 0 with a regex that runs on PCRE2 and
  // with behaviours that join matches, where nothing is known.
  size_t stable_prefix(std::string_view text) const;

  // True where the text before and the text from `position` on can be cut into pieces each for itself, with the same
  // pieces as together: 0 < position < text.size(). Looks at two bytes, by the CutRule of the splits.
  bool is_independent_cut(std::string_view text, size_t position) const;

 private:
  friend class PieceCursor;
  struct State;
  std::shared_ptr<const State> state_;
};

// Error{kInvalidArgument} with the nearest known name for any other name. Known are the names of tiktoken's encodings
// and those of tokenizer.ggml.pre in GGUF files.
Pretokenizer parse_pretokenizer(std::string_view name);
std::vector<std::string> pretokenizer_names();

// Reads the pieces of one text from left to right.
class PieceCursor {
 public:
  // Pieces that begin at `limit` or later are left out; what stands there is context. `text` must outlive the cursor.
  PieceCursor(const Pretokenizer& pretokenizer, std::string_view text, size_t limit = std::string_view::npos);
  ~PieceCursor();
  PieceCursor(const PieceCursor&) = delete;
  PieceCursor& operator=(const PieceCursor&) = delete;

  // Writes the next pieces into `out` and returns how many; 0 after the last. Error{kInvalidArgument} where a regex
  // gives up.
  size_t next(std::span<Piece> out);

 private:
  class Stage;
  bool pull(size_t depth, Piece& piece);
  size_t fill_regions(std::span<Piece> out);

  std::shared_ptr<const Pretokenizer::State> state_;
  std::string valid_;      // the text, made valid UTF-8, where a regex needs it
  std::string_view text_;  // that or the given text
  size_t limit_;
  size_t position_ = 0;  // how far the whole text has been handed out
  std::vector<Stage> stages_;
  Piece region_{0, 0};  // what the last, covering stage fills from, and how far
  size_t filled_ = 0;
};

}  // namespace loam
