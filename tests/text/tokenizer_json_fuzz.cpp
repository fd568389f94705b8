// Any bytes as a tokenizer.json: a tokenizer or Error{kBadFormat}; ids and their ranges are those of the text, and what
// is written reads back as a tokenizer of the same ids.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "loam/base/error.h"
#include "loam/text/tokenizer_files.h"

namespace {

using namespace loam;

const std::string kText = "The cat's\n\n  \xff \xe4\xbd\xa0 aaaa <s>\xe2\x96\x81";

// Limits that a tokenizer sets itself (no unknown token, a regex that gives up) are no fault.
template <class Action>
void allow_limits(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) std::abort();
  }
}

void check(const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.encode(kText, SpecialPolicy::all());
  const Encoding encoding = tokenizer.encode_with_ranges(kText, SpecialPolicy::all());
  if (encoding.ids != ids || encoding.ranges.size() != ids.size()) std::abort();
  for (const TextRange& range : encoding.ranges) {
    if (range.begin > range.end || range.end > kText.size()) std::abort();
  }
  if (tokenizer.lossless() && tokenizer.decode(tokenizer.encode(kText)) != kText) std::abort();
  std::string written;
  allow_limits([&] { written = tokenizer_json(tokenizer); });  // two tokens that would be written alike
  if (written.empty()) return;
  if (parse_tokenizer_json(written, "again").encode(kText, SpecialPolicy::all()) != ids) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Tokenizer tokenizer = parse_tokenizer_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    allow_limits([&] { check(tokenizer); });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
