// Documents to token sets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/data/document.h"
#include "loam/data/token_shard.h"
#include "loam/text/tokenizer.h"

namespace loam {

struct TokenizeOptions {
  std::vector<Path> inputs;  // files below `out` are left out: they are what an earlier call wrote
  DocumentReaderOptions reader;
  double val_fraction =
      0;  // of the documents, chosen by a hash of their text, so that the choice does not depend on their order
  int threads = 1;
  int64_t limit = 0;  // documents; 0: all
  bool force = false;
};

struct TokenizeResult {
  TokenSetInfo train, val;  // val.tokens == 0 without a validation part
  int64_t bad_lines = 0;
};

// Writes `out`/train and, with val_fraction > 0, `out`/val, and a copy of the tokenizer (`out`/tokenizer.json); `out`
// appears whole or not at all. Special tokens in the text are ordinary text. Each document begins with the
// token that the tokenizer puts in front of every text, if it has one, and ends with the end-of-text token, unless that
// is the same one, which then begins the next document (docs/decisions/0002). A document without text is left out.
// Byte-equal for any number of threads. With val_fraction > 0 both parts are non-empty: if the hash leaves one without
// documents, the document of lowest hash moves; a single document is cut in two at the line end nearest the fraction
// (validation last), or at a character if it is one line. Memory: a few MB a thread, and about twice the longest
// document (of JSONL four times). Errors: the reader's; {kAlreadyExists} without `force`; {kInvalidArgument} for no
// documents, a tokenizer without end-of-text token, or a fraction outside [0, 1); {kInterrupted} after Ctrl-C. Nothing
// is left behind; what a killed process left is removed by the next one.
TokenizeResult tokenize_documents(const Tokenizer& tokenizer, const TokenizeOptions& options, const Path& out);

}  // namespace loam
