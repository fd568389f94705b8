// Byte-level BPE as files state it: strings in GPT-2's alphabet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/json.h"
#include "loam/text/tokenizer.h"

namespace loam {

inline constexpr int64_t kMaxTokenizerBytes = int64_t{1} << 30;  // of a file

struct BpeParts {
  std::vector<std::pair<std::string, int32_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
};

// `source` names the file in all errors here.

// The member list {"token": id, ...}. Error{kBadFormat}: an id that is no number, negative, or so large that most ids
// would have no token; two tokens with one id; one token twice.
std::vector<std::pair<std::string, int32_t>> read_vocab(const Json& vocab, std::string_view source);

// One merge from "a b". Error{kBadFormat} unless there is exactly one space with text on both sides.
std::pair<std::string, std::string> split_merge(std::string_view text, std::string_view source);

// Appends the merges to model.merges and model.merge_ids. Error{kBadFormat} for one that is not of tokens.
void take_merges(const BpeParts& parts, std::string_view source, SpmModel& model);

// Tokens that are among `specials` stand for their own text, the others for the bytes behind the alphabet.
// Error{kBadFormat} for a merge of unknown tokens.
BpeModel assemble_bpe(const BpeParts& parts, std::vector<SpecialToken> specials, std::string_view source);

// The tokenizer of a model that a file gave.
template <class Model>
Tokenizer make_tokenizer(Model model, std::string_view source) {
  try {
    return Tokenizer(std::move(model));
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", source, error.what());
  }
}

// The other direction. Error{kInvalidArgument} if two tokens would be written alike.
BpeParts disassemble_bpe(const BpeModel& model);

}  // namespace loam
