// Any bytes as a SentencePiece model: a tokenizer that encodes, or Error{kBadFormat}.
#include <cstdlib>

#include "loam/base/error.h"
#include "loam/text/tokenizer_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  try {
    const Tokenizer tokenizer = parse_sentencepiece({reinterpret_cast<const char*>(data), size}, "fuzz");
    const Encoding encoding = tokenizer.encode_with_ranges("The cat's\n\n  \xff \xe4\xbd\xa0 aaaa <s>");
    if (encoding.ids.size() != encoding.ranges.size()) std::abort();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
