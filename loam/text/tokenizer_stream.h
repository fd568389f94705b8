// Tokenizers over streams of bytes, in constant memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "loam/base/file.h"
#include "loam/text/tokenizer.h"

namespace loam {

struct StreamCounts {
  int64_t bytes = 0;  // of text
  int64_t tokens = 0;
};

// Encodes all of `source` as one text and hands the ids to `sink` part by part, from the calling thread.
// check_interrupt() between parts.
StreamCounts encode_stream(const Tokenizer& tokenizer, ByteSource& source, const SpecialPolicy& policy,
                           const IdSink& sink, int threads = 1);

enum class IdFormat {
  kText,  // decimal numbers with white space, or commas and brackets as in JSON arrays, between them
  kU16,   // little-endian numbers of 2 bytes
  kU32,   // and of 4
};

// Decodes the ids in `source` and hands the bytes to `sink`, part by part; they may end inside a character.
// check_interrupt() between parts. Error{kBadFormat} with the byte offset for what is no id, for an id that has no
// token, for a bracket without its other half, or for bytes left over; what comes before may have been handed out.
StreamCounts decode_stream(const Tokenizer& tokenizer, ByteSource& source, IdFormat format,
                           const std::function<void(std::string_view)>& sink);

}  // namespace loam
