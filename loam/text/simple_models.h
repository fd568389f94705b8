// The simple kinds of tokenizer, for comparison with subwords: characters and words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loam/text/tokenizer_model.h"

namespace loam {

// A piece of text and how often it occurs.
struct PieceCount {
  std::string piece;
  int64_t count = 0;
};

// The splits that make every character a piece.
Pretokenizer character_pretokenizer();

// The 256 bytes, the characters, the special tokens last: other characters are their bytes, so nothing is lost.
SpmModel make_character_model(const std::vector<PieceCount>& characters,
                              const std::vector<std::string>& special_tokens);
inline constexpr const char* kUnknownWord = "<unk>";

// kUnknownWord, the pieces that are valid UTF-8, as the files demand, the special tokens last: other pieces are
// unknown.
WordModel make_word_model(const std::vector<PieceCount>& words, const std::vector<std::string>& special_tokens,
                          Pretokenizer pretokenizer);

}  // namespace loam
