// Any bytes as a tokenizer.json: a tokenizer or Error{kBadFormat}; a tokenizer encodes and decodes without loss, and
// what it writes reads back as itself.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "loam/base/error.h"
#include "loam/text/tokenizer_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  try {
    const Tokenizer tokenizer = parse_tokenizer_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string text = "The cat's\n\n  \xff \xe4\xbd\xa0 aaaa";
    const std::string back = tokenizer.decode(tokenizer.encode(text));
    if (tokenizer.lossless() && back != text) std::abort();
    try {
      if (parse_tokenizer_json(tokenizer_json(tokenizer), "again").fingerprint() != tokenizer.fingerprint())
        std::abort();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) std::abort();  // two tokens that would be written alike
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
