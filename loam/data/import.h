// Token ids of other programs to token sets.
#pragma once

#include <vector>

#include "loam/data/split_writer.h"
#include "loam/data/token_file.h"

namespace loam {

// The files that expand_inputs() finds for `input`; of a directory only *.bin and *.npy. Error{kNotFound}.
std::vector<Path> token_files_of(const std::string& input);

struct ImportOptions {
  std::vector<Path> inputs, val_inputs;
  TokenFileFormat format = TokenFileFormat::automatic;
  double val_fraction = 0;             // of the documents, chosen by a hash of their ids; only without val_inputs
  int64_t longest_document = 1 << 24;  // in tokens; longer ones are cut
  int32_t document_token = -1;         // stands at every document's end, or in front of it; -1: the end of text
  bool force = false;
};

// Writes `out`/train and, with val_fraction or val_inputs, `out`/val, as tokenize_documents does, and with `tokenizer`
// its tokenizer.json. `vocabulary` (without a tokenizer) gives vocab_size and end_of_text; then the bytes of the text
// are not known. Their ids go over one for one. A document ends behind a document token, or, where the first id of all
// is one, before the next; without any a file is a document. So does a file end one, but those of llm.c go on in the
// next. Documents of more than longest_document tokens are cut there. text_bytes is the sum of the bytes of the
// ordinary tokens (less the space that a tokenizer puts in front of every text).
//
// With val_fraction > 0 both parts are non-empty: a single document is cut in two, and so is each piece of one that is
// longer than longest_document. Memory: constant, and that of the longest document. One input is open at a time.
// Errors: those of TokenFile; {kAlreadyExists} without `force`; {kInvalidArgument} for no ids; {kBadFormat} for an id
// that the tokenizer lacks; {kInterrupted} after Ctrl-C. Nothing is left behind.
SplitWriter::Result import_tokens(const Tokenizer* tokenizer, const TokenSetInfo& vocabulary,
                                  const ImportOptions& options, const Path& out);

}  // namespace loam
