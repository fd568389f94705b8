// Any bytes as a tokenizer.bin, alone or behind the control and byte tokens that every such file begins with: a
// tokenizer that encodes and decodes without loss, or Error{kBadFormat}.
#include <cstdlib>

#include "loam/base/error.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/fuzz_file.h"

namespace {

std::string first_tokens() {
  std::string file(4, '\0');
  const auto add = [&](const std::string& token) {
    file.append(4, '\0');  // the score
    file += static_cast<char>(token.size());
    file.append(3, '\0');
    file += token;
  };
  for (const char* control : {"<unk>", "\n<s>\n", "\n</s>\n"}) add(control);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte));
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const std::string front = first_tokens();
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] % 4 != 0) file.replace(0, 1, front);
  const testing::FuzzFile input(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  try {
    const Tokenizer tokenizer = load_llama2c_tokenizer(input.path());
    const std::string text = "The cat's\n\n  \xff \xe4\xbd\xa0 aaaa";
    if (tokenizer.decode(tokenizer.encode(text)) != text) std::abort();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
