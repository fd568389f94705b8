// Any bytes as merges.txt beside a good vocab.json, or as a vocab.json's tokens beyond the 256 bytes: a tokenizer or
// Error{kBadFormat}; a tokenizer encodes and decodes without loss, and the pair that it writes reads back as itself.
#include <cstdlib>

#include "loam/base/error.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

namespace {

using namespace loam;

// vocab.json of the 256 bytes, but for the brace that closes it.
std::string bytes_of_every_vocabulary() {
  const testing::TempDir directory;
  save_tokenizer(Tokenizer(make_bpe_model({}, {}, {})), directory.path());
  const std::string text = read_file(directory / "vocab.json");
  return text.substr(0, text.rfind('}'));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const testing::TempDir directory;
  static const std::string bytes = bytes_of_every_vocabulary();
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool is_merges = data[0] % 2;
  testing::write_quickly(directory / "vocab.json",
                         bytes + (is_merges ? R"(,"th":256,"the":257,"aa":258,"<e>":300})" : text));
  testing::write_quickly(directory / "merges.txt", is_merges ? text : "#version: 0.2\nt h\n");
  try {
    const Tokenizer tokenizer = load_tokenizer(directory / "vocab.json");
    const std::string sample = "The cat's\n\n  \xff \xe4\xbd\xa0 the aaaa";
    if (tokenizer.decode(tokenizer.encode(sample)) != sample && tokenizer.lossless()) std::abort();
    try {
      const testing::TempDir again;
      save_tokenizer(tokenizer, again.path());
      if (load_tokenizer(again / "vocab.json").fingerprint() != tokenizer.fingerprint()) std::abort();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) std::abort();  // two tokens that would be written alike
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
