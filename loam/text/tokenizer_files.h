// Reading and writing tokenizers: Hugging Face `tokenizer.json`, the GPT-2 pair `vocab.json` + `merges.txt`, and llama2.c's `tokenizer.bin` (read only).
#pragma once

#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/text/tokenizer.h"

namespace loam {

// `path` is a tokenizer.json, a directory that holds one (or the GPT-2 pair), or a vocab.json with merges.txt beside it.
// Error{kBadFormat} for anything that would change ids and is not supported (another model, normaliser or pattern): never guessed.
Tokenizer load_tokenizer(const Path& path);

// Writes tokenizer.json, vocab.json and merges.txt into an existing directory. Hugging Face tokenizers reads the first with equal ids.
void save_tokenizer(const Tokenizer& tokenizer, const Path& directory);

// tokenizer.json alone, as text.
std::string tokenizer_json(const Tokenizer& tokenizer);
Tokenizer parse_tokenizer_json(std::string_view text, std::string_view source);

}  // namespace loam
