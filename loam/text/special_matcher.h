// Finding special tokens in text: the leftmost, and of those that start at one place the longest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loam/text/tokenizer.h"

namespace loam {

// Thread safety: const members may be called from any thread.
class SpecialMatcher {
 public:
  // Texts must not be empty; of equal ones the first counts.
  explicit SpecialMatcher(std::vector<SpecialToken> specials);

  struct Found {
    size_t position;  // text.size() if there is none
    size_t length;    // 0 if the text ends inside what may become a special token (or a longer one)
    int32_t id;
  };
  // The first special token from `from` on. With `may_continue` the text is the front of a longer one, so a place where
  // more bytes could change the answer is reported with length 0.
  Found find(std::string_view text, size_t from, bool may_continue = false) const;

  bool empty() const { return specials_.empty(); }

 private:
  Found match(std::string_view text, size_t position, bool may_continue) const;

  std::vector<SpecialToken> specials_;  // sorted by text
  std::array<bool, 256> starts_{};      // the first bytes
  int only_start_ = -1;                 // the first byte, if all share one
};

}  // namespace loam
