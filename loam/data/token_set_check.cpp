#include "loam/data/token_set_check.h"

#include <algorithm>
#include <optional>

#include "loam/base/error.h"
#include "loam/base/log.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

constexpr int64_t kBlock = 1 << 16;  // tokens read at once

// The bytes that a set's texts can have: no less than its ordinary tokens, no more than all of them.
struct ByteRange {
  int64_t least = 0, most = 0;
};

ByteRange byte_range(const Path& index, const TokenSet& set, const Tokenizer& tokenizer) {
  ByteRange range;
  std::vector<int32_t> ids;
  for (int64_t begin = 0; begin < set.tokens(); begin += kBlock) {
    ids.resize(static_cast<size_t>(std::min(kBlock, set.tokens() - begin)));
    set.read(begin, ids);
    for (const int32_t id : ids) {
      if (!tokenizer.has_token(id))
        fail(ErrorCode::kBadFormat, "{}: the token {} is not in the tokenizer.json of these data", index.string(), id);
      const auto bytes = static_cast<int64_t>(tokenizer.token_bytes(id).size());
      range.most += bytes;
      if (!tokenizer.is_special(id)) range.least += bytes;
    }
  }
  // The space that is put in front of a text.
  if (tokenizer.rules().space.prefix != SpaceRule::Prefix::kNever) range.least -= set.info().documents;
  return range;
}

void check_set(const Path& index, const TokenSet& set, const Tokenizer& tokenizer, bool count_bytes) {
  const TokenSetInfo& info = set.info();
  const auto check = [&](bool ok, const char* key, const auto& stated, const auto& found) {
    if (ok) return;
    fail(ErrorCode::kBadFormat, "{}: '{}' is {}, but by the tokenizer.json of these data it is {}", index.string(), key,
         stated, found);
  };
  check(info.tokenizer_fingerprint == tokenizer.fingerprint(), "tokenizer", info.tokenizer_fingerprint,
        tokenizer.fingerprint());
  check(info.vocab_size == tokenizer.vocab_size(), "vocab_size", info.vocab_size, tokenizer.vocab_size());
  check(info.end_of_text == tokenizer.end_of_text_id(), "end_of_text", info.end_of_text, tokenizer.end_of_text_id());
  if (!count_bytes || !tokenizer.lossless()) return;
  const ByteRange range = byte_range(index, set, tokenizer);
  check(info.text_bytes >= range.least && info.text_bytes <= range.most, "text_bytes", info.text_bytes,
        fmt::format("between {} and {}", range.least, range.most));
}

std::optional<Tokenizer> read_tokenizer(const Path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  try {
    return parse_tokenizer_json(read_file(path), path.string());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) throw;
    log_warn("{}: the token sets are not checked against it", error.what());
    return std::nullopt;
  }
}

}  // namespace

void check_token_sets(const Path& data, const TokenSet& train, const TokenSet* val, bool count_bytes) {
  const Path val_index = data / "val" / "index.json";
  if (val && val->info().tokenizer_fingerprint != train.info().tokenizer_fingerprint) {
    fail(ErrorCode::kBadFormat, "{}: 'tokenizer' is not that of train/: the two were made by different tokenizers",
         val_index.string());
  }
  if (val &&
      (val->info().vocab_size != train.info().vocab_size || val->info().end_of_text != train.info().end_of_text)) {
    fail(ErrorCode::kBadFormat, "{}: 'vocab_size' and 'end_of_text' are {} and {}, but {} and {} in train/",
         val_index.string(), val->info().vocab_size, val->info().end_of_text, train.info().vocab_size,
         train.info().end_of_text);
  }
  const std::optional<Tokenizer> tokenizer = read_tokenizer(data / "tokenizer.json");
  if (!tokenizer) return;
  check_set(data / "train" / "index.json", train, *tokenizer, count_bytes);
  if (val) check_set(val_index, *val, *tokenizer, count_bytes);
}

}  // namespace loam
