// Any bytes as a shard, with an index that agrees with its header as far as an index can: Error{kBadFormat}, or a set
// of which every token and document can be read.
#include <cstring>

#include "loam/base/error.h"
#include "loam/base/json.h"
#include "loam/data/token_shard.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const testing::TempDir directory;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  int32_t token_bytes = 2;
  int64_t tokens = 1, documents = 1;
  if (size >= 32) {
    std::memcpy(&token_bytes, data + 8, 4);
    std::memcpy(&tokens, data + 16, 8);
    std::memcpy(&documents, data + 24, 8);
  }
  const Json shard = Json::Object{{"file", "x.tok"}, {"tokens", tokens}, {"documents", documents}};
  const Json index = Json::Object{{"format", "loam tokens"},
                                  {"version", 1},
                                  {"tokenizer", ""},
                                  {"vocab_size", token_bytes == 2 ? 1000 : 100'000},
                                  {"end_of_text", -1},
                                  {"tokens", tokens},
                                  {"documents", documents},
                                  {"text_bytes", 0},
                                  {"shards", Json::Array{shard}}};
  testing::write_quickly(directory / "x.tok", bytes);
  testing::write_quickly(directory / "index.json", index.dump());
  try {
    const TokenSet set(directory.path());
    std::vector<int32_t> all(static_cast<size_t>(set.tokens()));
    set.read(0, all);
    for (int64_t d = 0; d < set.info().documents; ++d) {
      if (set.document_of(set.document_begin(d)) != d) std::abort();
      if (set.document_of(set.document_begin(d + 1) - 1) != d) std::abort();
    }
    set.verify();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
