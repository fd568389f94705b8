// Any bytes as vocab.json and, after a NUL, as merges.txt: a tokenizer or Error{kBadFormat}; a tokenizer encodes and
// decodes without loss, and the pair that it writes reads back as itself. An object in the first part is completed by
// the 256 bytes, without which no vocabulary is one.
#include <algorithm>
#include <cstdlib>

#include "loam/base/error.h"
#include "loam/base/json.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

namespace {

using namespace loam;

// The JSON of the 256 bytes' tokens, without the brace that opens it.
std::string bytes_of_every_vocabulary() {
  const testing::TempDir directory;
  save_tokenizer(Tokenizer(make_bpe_model({}, {}, Pretokenizer::kGpt2)), directory.path());
  return read_file(directory / "vocab.json").substr(1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const testing::TempDir directory;
  static const std::string bytes = bytes_of_every_vocabulary();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(text.find('\0'), size);
  std::string vocab(text.substr(0, end));
  if (vocab.ends_with('}')) {
    vocab.back() = ',';
    vocab += bytes;
  }
  testing::write_quickly(directory / "vocab.json", vocab);
  testing::write_quickly(directory / "merges.txt", end < size ? text.substr(end + 1) : "");
  try {
    const Tokenizer tokenizer = load_tokenizer(directory / "vocab.json");
    const std::string sample = "The cat's\n\n  \xff \xe4\xbd\xa0 aaaa";
    if (tokenizer.decode(tokenizer.encode(sample)) != sample) std::abort();
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
