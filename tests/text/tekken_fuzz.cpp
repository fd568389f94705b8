// Any bytes as a tekken.json, or as the end of its list of tokens behind those of the 256 bytes: a tokenizer that
// encodes without loss, if it says so, or Error{kBadFormat}; kInvalidArgument for a pattern that PCRE2 refuses.
#include <cstdlib>

#include "loam/base/base64.h"
#include "loam/base/error.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] % 4 != 0) {
    std::string front =
        R"({"config":{"pattern":"[a-z]+|[^a-z]+","default_num_special_tokens":3,"default_vocab_size":)" +
        std::to_string(259 + data[0] % 8) + R"(},"vocab":[)";
    for (int byte = 0; byte < 256; ++byte)
      front += R"({"rank":)" + std::to_string(byte) + R"(,"token_bytes":")" +
               base64_encode(std::string(1, static_cast<char>(byte))) + R"("},)";
    file = front + file;
  }
  const testing::FuzzFile input(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  try {
    const Tokenizer tokenizer = load_tekken(input.path());
    const std::string text = "The cat's\n\n  \xff \xe4\xbd\xa0 aaaa";
    if (tokenizer.decode(tokenizer.encode(text)) != text && tokenizer.lossless()) std::abort();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat && error.code() != ErrorCode::kInvalidArgument) std::abort();
  }
  return 0;
}
