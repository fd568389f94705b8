// Tokenizers over streams of bytes, in constant memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "loam/base/file.h"
#include "loam/text/bpe_train.h"
#include "loam/text/tokenizer.h"

namespace loam {

struct StreamCounts {
  int64_t bytes = 0;
  int64_t tokens = 0;
};

// Encodes all of `source` as one text and hands the ids to `sink` part by part. check_interrupt() between parts.
StreamCounts encode_stream(const Tokenizer& tokenizer, ByteSource& source, const SpecialPolicy& policy,
                           const std::function<void(std::span<const int32_t>)>& sink);

// Decodes ids written as decimal numbers with white space (or commas and brackets, as in JSON arrays) between them, and
// hands the bytes to `sink`. Error{kBadFormat} for anything else, Error{kInvalidArgument} for an id that has no token.
StreamCounts decode_stream(const Tokenizer& tokenizer, ByteSource& source,
                           const std::function<void(std::string_view)>& sink);

// Counts all of `source` as one document, part by part. Parts are cut behind a special token or before white space,
// where the pieces stay the same; text without either is held until it ends.
int64_t add_stream(BpeTrainer& trainer, ByteSource& source);

}  // namespace loam
