// The inside of Tokenizer, for the files that implement it.
#pragma once

#include <bitset>
#include <optional>
#include <string>
#include <vector>

#include "loam/text/encoder.h"
#include "loam/text/special_matcher.h"
#include "loam/text/tokenizer.h"

namespace loam {

struct Tokenizer::State {
  explicit State(BpeModel model);
  explicit State(SpmModel model);

  const std::vector<std::string>& bytes() const { return bpe ? bpe->tokens : spm_bytes; }
  SpecialMatcher matcher(const SpecialPolicy& policy) const;

  std::optional<BpeModel> bpe;
  std::optional<SpmModel> spm;
  std::vector<std::string> spm_bytes;  // by id; for a byte token the byte
  std::vector<SpecialToken> specials;
  std::vector<bool> control;  // by id
  EncodeTables tables;
  SpecialMatcher match_none, match_all;
  std::bitset<65536> inside_added;  // 256 * byte + next byte: neighbours inside an added token that is always matched
};

}  // namespace loam
