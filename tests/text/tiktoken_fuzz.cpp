// Any bytes as lines of a file of ranks, alone or behind those of the 256 bytes: a tokenizer that encodes without loss,
// if it says so, or Error{kBadFormat}.
#include <cstdlib>

#include "loam/base/base64.h"
#include "loam/base/error.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] % 4 != 0) {
    std::string front;
    for (int byte = 0; byte < 256; ++byte)
      front += base64_encode(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte) + "\n";
    file = front + file;
  }
  const testing::FuzzFile input(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  try {
    const Tokenizer tokenizer = load_tiktoken(input.path(), "gpt2");
    const std::string text = "The cat's\n\n  \xff \xe4\xbd\xa0 aaaa";
    if (tokenizer.decode(tokenizer.encode(text)) != text && tokenizer.lossless()) std::abort();
    tiktoken_ranks(tokenizer);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
