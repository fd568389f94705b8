// Finding added tokens in text: the leftmost, and of those that start at one place the longest. As in Hugging Face's
// library, one that must stand alone and does not is passed over whole, and the search goes on behind the text of a
// token, whatever white space it takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loam/text/tokenizer_model.h"

namespace loam {

// Thread safety: const members may be called from any thread.
class SpecialMatcher {
 public:
  // Texts must not be empty; of equal ones the first counts.
  explicit SpecialMatcher(std::vector<SpecialToken> specials);

  struct Found {
    size_t position;  // text.size() if there is none
    size_t length;    // with white space that belongs to it; 0 if the text ends inside what may become a token
    int32_t id;
    size_t behind;  // where its text ends, without white space
  };
  // The first token from `from` on, which takes no white space in front of `free`. With `may_continue` the text is the
  // front of a longer one, so a place where more bytes could change the answer is reported with length 0; not for a
  // matcher that looks_around().
  Found find(std::string_view text, size_t from, size_t free, bool may_continue = false) const;

  bool empty() const { return specials_.empty(); }
  // Some token depends on the characters beside it (single_word, lstrip, rstrip).
  bool looks_around() const { return looks_around_; }

 private:
  struct Match {
    const SpecialToken* token = nullptr;  // the longest; null if there is none
    bool open = false;                    // more text may make a longer one
  };
  Match longest(std::string_view text, size_t position, bool may_continue) const;

  bool stands_alone(std::string_view text, size_t begin, size_t end) const;

  std::vector<SpecialToken> specials_;  // sorted by text
  bool looks_around_ = false;
  std::array<bool, 256> starts_{};  // the first bytes
  int only_start_ = -1;             // the first byte, if all share one
};

}  // namespace loam
