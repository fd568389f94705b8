// Any bytes as ids of each form: Error{kBadFormat}, or the bytes that the ids have one by one.
#include <cstdlib>
#include <cstring>

#include "loam/base/error.h"
#include "loam/text/tokenizer_stream.h"
#include "tests/harness/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const Tokenizer tokenizer(make_bpe_model({{'t', 'h'}, {256, 'e'}}, {"<|end|>"}, {}));
  for (const IdFormat format : {IdFormat::kText, IdFormat::kU16, IdFormat::kU32}) {
    const testing::FuzzFile input(data, size);
    const std::string path = input.path();
    std::string text;
    StreamCounts counts;
    try {
      counts = decode_stream(tokenizer, *open_input(path), format, [&](std::string_view part) { text += part; });
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadFormat) std::abort();
      continue;
    }
    if (counts.bytes != static_cast<int64_t>(text.size())) std::abort();
    if (format == IdFormat::kText) {
      std::vector<int32_t> ids;
      for (size_t i = 0; i < size; ++i) {
        const bool digit = data[i] >= '0' && data[i] <= '9';
        const bool begins = i == 0 || data[i - 1] < '0' || data[i - 1] > '9';
        if (digit && begins) ids.push_back(0);
        if (digit) ids.back() = 10 * ids.back() + data[i] - '0';
      }
      if (tokenizer.decode(ids) != text) std::abort();
    } else if (format == IdFormat::kU16) {
      if (counts.tokens != static_cast<int64_t>(size / 2)) std::abort();
    } else if (counts.tokens != static_cast<int64_t>(size / 4)) {
      std::abort();
    }
  }
  return 0;
}
