// Reading and writing tokenizers: Hugging Face `tokenizer.json`, the GPT-2 pair `vocab.json` + `merges.txt`, tiktoken's
// files of ranks; and, only read, SentencePiece's `.model`, GGUF, and llama2.c's `tokenizer.bin`.
#pragma once

#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/gguf.h"
#include "loam/base/gguf_writer.h"
#include "loam/text/tokenizer.h"

namespace loam {

// `path` is a tokenizer.json, a directory that holds one (or a tokenizer.model, or the GPT-2 pair), a vocab.json with
// merges.txt beside it, or, by its ending, a .tiktoken, .model (or .model.v3), .gguf or llama2.c's .bin.
// Error{kNotFound} without such a file; Error{kBadFormat} for anything that would change ids and is not supported:
// never guessed. What a tokenizer.json says of truncation and padding belongs to a batch, not to ids, and is not taken
// over.
Tokenizer load_tokenizer(const Path& path);
// The file of a directory that load_tokenizer() takes; empty if there is none.
Path tokenizer_in(const Path& directory);

// Writes tokenizer.json into an existing directory, and GPT-2's pair vocab.json and merges.txt if they hold all that
// decides ids. Hugging Face tokenizers reads the first with equal ids.
void save_tokenizer(const Tokenizer& tokenizer, const Path& directory);

// Error{kInvalidArgument} for a text that cannot be a special token of a trained tokenizer: none, too long, no UTF-8,
// or one as which its files would write ordinary bytes ("a", "Ġthe", "<0x41>").
void check_special_token(std::string_view text);

// tokenizer.json alone, as text.
// A SentencePiece vocabulary is written in the form of Llama's tokenizer.json (its scores become the order of merges).
// SentencePiece's own way with its normalization table is not one that the format knows; it is written as the nearest.
std::string tokenizer_json(const Tokenizer& tokenizer);
Tokenizer parse_tokenizer_json(std::string_view text, std::string_view source);

// SentencePiece's `.model`: a ModelProto (sentencepiece_model.proto), BPE or Unigram; the kinds word and char are
// refused. Control pieces become control tokens, unused ones are never made (in BPE they are refused), and user-defined
// ones are found wherever the normalized text holds them. The compiled normalization table, the space rules and byte
// fallback are taken over.
Tokenizer load_sentencepiece(const Path& path);
Tokenizer parse_sentencepiece(std::string_view bytes, std::string_view source);

// tiktoken's file of ranks: lines of a token in base64 and its rank; merges follow from the ranks. `encoding` gives the
// pattern and the special tokens: "gpt2", "r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base",
// "o200k_harmony", "llama3", "llama4", "qwen", "qwen3.5"; "" takes it from the file's name, or else from the number of
// ranks. Error{kInvalidArgument} that lists them for another name, or where neither decides.
Tokenizer load_tiktoken(const Path& path, std::string_view encoding = "");
// Ranks of the tokens that are not special. Error{kInvalidArgument} unless the tokenizer is byte-level BPE whose merges
// follow from the order of its ids.
std::string tiktoken_ranks(const Tokenizer& tokenizer);

// Mistral's tekken.json: ranks, a pattern, and control tokens, whose ids come first. Error{kBadFormat} for a damaged
// file, Error{kInvalidArgument} for a pattern that PCRE2 refuses.
Tokenizer load_tekken(const Path& path);

// The tokenizer in the metadata of a GGUF file (ggml's docs/gguf.md): the models "gpt2" (byte-level BPE, its pattern by
// name), "llama" (SentencePiece BPE), "gemma4" (BPE of characters), "t5" (Unigram) and "bert" (WordPiece, there written
// in SentencePiece's way).
Tokenizer load_gguf_tokenizer(const Path& path);
Tokenizer load_gguf_tokenizer(const Gguf& file);
// The other direction, of both kinds of BPE: keys for a file whose embedding has `vocab_size` rows. `bos_id` (-1: none)
// and `eos_ids` are what the model states. Error{kInvalidArgument} in one line for what llama.cpp would do otherwise: a
// pattern that it has no name for, a normalizer, merges that follow from no scores, ...; a warning where it differs in
// what is rare (NFC, a space in front of text that begins with one, white space beside control tokens).
std::vector<GgufField> gguf_tokenizer(const Tokenizer& tokenizer, int64_t vocab_size, int32_t bos_id,
                                      const std::vector<int32_t>& eos_ids);

// llama2.c's tokenizer.bin: an int32 (the longest token), then for each token a float score, an int32 length and that
// many bytes. Token 0 is unknown, 1 <s>, 2 </s>, 3 to 258 the bytes. `vocab_size` is what the model says; -1 takes all
// there are. Error{kBadFormat} for a length that does not fit the file, or another number of tokens.
Tokenizer load_llama2c_tokenizer(const Path& path, int64_t vocab_size = -1);

}  // namespace loam
