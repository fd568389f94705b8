// The inside of Tokenizer, for the files that implement it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loam/text/encoder.h"
#include "loam/text/special_matcher.h"
#include "loam/text/tokenizer.h"

namespace loam {

// The added tokens that a policy lets match: those looked for in the text as it is given, and those in normalized text.
struct AddedTokens {
  AddedTokens(const std::vector<SpecialToken>& allowed, const TokenizerRules& rules);
  SpecialMatcher given, normalized;
};

struct Tokenizer::State {
  explicit State(TokenizerModel model);

  AddedTokens added(const SpecialPolicy& policy) const;

  TokenizerModel model;
  const TokenizerRules* rules;         // of the model
  std::vector<std::string> bytes;      // by id, as decoding gives them
  std::vector<SpecialToken> specials;  // of the rules, and what the kind of model implies
  std::vector<bool> control;           // by id
  int32_t bos_id = -1;
  std::unique_ptr<PieceModel> pieces;
  std::optional<AddedTokens> added_none, added_all;
  SpecialMatcher control_only{{}};
  NeighbourSet inside_added;  // of the tokens that are always matched
  // Nothing happens to text but added tokens and pieces: no normalizer, no space in front, no cuts inside pieces.
  bool plain = false;
};

// What stands before a text that is encoded.
enum class Before { kStart, kAddedToken, kText };

// Encodes texts for one caller: added tokens, normalizer, space rule, pieces. Not thread-safe: one a thread.
class TextEncoder {
 public:
  // `expected_bytes` sizes the cache. All that is given must outlive it.
  TextEncoder(const TokenizerRules& rules, const PieceModel& pieces, const AddedTokens& added, size_t expected_bytes)
      : rules_(rules), added_(added), encoder_(rules.pretokenizer, pieces, expected_bytes) {}

  // Appends the ids of `text`; `ranges`, unless null, takes where each comes from.
  void encode(std::string_view text, Before before, std::vector<int32_t>& ids, std::vector<TextRange>* ranges);
  // The same for a stretch between added tokens of AddedTokens::given.
  void encode_segment(std::string_view text, Before before, std::vector<int32_t>& ids, std::vector<TextRange>* ranges);
  // And for normalized text between added tokens, of which text[0, limit), the end of a piece, is wanted.
  void encode_pieces(std::string_view text, size_t limit, std::vector<int32_t>& ids) {
    encoder_.encode(text, limit, ids);
  }

 private:
  bool wants_space(Before before) const;
  void encode_spaced(std::string_view text, Before before, std::vector<int32_t>& ids, std::vector<TextRange>* ranges);

  const TokenizerRules& rules_;
  const AddedTokens& added_;
  Encoder encoder_;
};

}  // namespace loam
