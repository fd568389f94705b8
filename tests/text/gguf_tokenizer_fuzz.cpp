// Any bytes as a GGUF file: a tokenizer that encodes, or an error that says what is wrong.
#include <cstdlib>

#include "loam/base/error.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  const testing::FuzzFile input(data, size);
  try {
    const Tokenizer tokenizer = load_gguf_tokenizer(input.path());
    const Encoding encoding = tokenizer.encode_with_ranges("The cat's\n\n  \xff \xe4\xbd\xa0 aaaa <s>");
    if (encoding.ids.size() != encoding.ranges.size()) std::abort();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
