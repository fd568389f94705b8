// What `loam tokenizer encode` and `count` share: text from files, and what it may become.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/options.h"
#include "loam/text/tokenizer.h"

namespace loam {

struct TextOptions {
  std::string tokenizer;
  DocumentReaderOptions reader;
  std::vector<std::string> allow_special, inputs;
  bool raw = false;  // JSONL and byte order marks are taken as the bytes that they are

  // UsageError for a special token that the tokenizer does not have.
  SpecialPolicy policy(const Tokenizer& of) const;
};
void add_text(Command& command, TextOptions& options);

// The documents of `files`, one after the other; bad lines are counted and said.
using TakeDocument = std::function<void(const Document&)>;
void for_each_document(const DocumentReaderOptions& options, const std::vector<Path>& files, OutputProgress& progress,
                       const TakeDocument& take);
// The same of JSONL only; the bytes of plain text behind a byte order mark, or with --raw all bytes of everything, go
// to `take_stream` unread.
void for_each_text(const TextOptions& options, const std::vector<Path>& files, OutputProgress& progress,
                   const TakeDocument& take, const std::function<void(ByteSource&)>& take_stream);

}  // namespace loam
