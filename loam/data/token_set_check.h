// Whether the parts of a directory that `loam data tokenize` made belong together.
#pragma once

#include "loam/base/file.h"
#include "loam/data/token_shard.h"

namespace loam {

// `data`/train, `data`/val (null if there is none) and `data`/tokenizer.json against each other: the tokenizer's
// fingerprint, vocabulary and end of text, and with `count_bytes`, which reads all tokens, the bytes of text.
// Error{kBadFormat} that names the index that contradicts. Without a tokenizer.json nothing is compared with it; one
// that loam cannot read is a warning.
void check_token_sets(const Path& data, const TokenSet& train, const TokenSet* val, bool count_bytes);

}  // namespace loam
