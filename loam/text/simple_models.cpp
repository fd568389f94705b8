#include "loam/text/simple_models.h"

#include <fmt/format.h>

#include "loam/base/utf8.h"

namespace loam {
namespace {

void add_specials(const std::vector<std::string>& texts, std::vector<std::string>& tokens, TokenizerRules& rules) {
  for (const std::string& text : texts) {
    rules.specials.push_back({text, static_cast<int32_t>(tokens.size())});
    tokens.push_back(text);
  }
}

}  // namespace

Pretokenizer character_pretokenizer() { return Pretokenizer({Split{R"([\s\S])"}}); }

SpmModel make_character_model(const std::vector<PieceCount>& characters,
                              const std::vector<std::string>& special_tokens) {
  SpmModel model;
  static_cast<TokenizerRules&>(model) = {};
  model.pretokenizer = Pretokenizer(std::vector<Split>());
  model.unknown_id = model.bos_id = model.eos_id = -1;
  model.first_byte_id = 0;
  model.space_marks = model.fuse_unknown = false;
  model.lists_merges = true;
  for (int byte = 0; byte < 256; ++byte) model.tokens.push_back(fmt::format("<0x{:02X}>", byte));
  for (const PieceCount& c : characters) {
    const Utf8Char first = decode_utf8(c.piece, 0);
    if (first.valid && static_cast<size_t>(first.length) == c.piece.size()) model.tokens.push_back(c.piece);
  }
  add_specials(special_tokens, model.tokens, model);
  model.scores.resize(model.tokens.size());
  return model;
}

WordModel make_word_model(const std::vector<PieceCount>& words, const std::vector<std::string>& special_tokens,
                          Pretokenizer pretokenizer) {
  WordModel model;
  model.pretokenizer = std::move(pretokenizer);
  model.tokens = {kUnknownWord};
  model.spaces = false;
  for (const PieceCount& word : words) {
    if (word.piece != kUnknownWord && replace_invalid_utf8(word.piece) == word.piece)
      model.tokens.push_back(word.piece);
  }
  add_specials(special_tokens, model.tokens, model);
  return model;
}

}  // namespace loam
