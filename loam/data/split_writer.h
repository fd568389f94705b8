// The two token sets of a data directory, train/ and val/, and the tokenizer beside them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loam/data/token_shard.h"
#include "loam/text/tokenizer.h"

namespace loam {

enum class Part { train, val };

// All that is written to a data directory, as patterns, so that --force replaces nothing else.
extern const std::vector<std::string> kDataDirectoryContents;

// The part of a document by a hash of its contents, so that equal ones fall on the same side and their order does not
// matter.
uint64_t split_hash(std::string_view contents);
Part part_of(uint64_t hash, double val_fraction);

// What a data directory says of a tokenizer.
TokenSetInfo info_of(const Tokenizer& tokenizer);
// The data go with the tokenizer.json that is written beside them: the tokenizer as that file holds it, with a warning
// if it holds less.
struct WrittenTokenizer {
  explicit WrittenTokenizer(const Tokenizer& given);
  std::string text;  // of tokenizer.json
  Tokenizer tokenizer;
};

// With `split` neither part stays empty where there are two documents: if all went to one, that of the lowest hash
// moves, with all that are equal to it unless all are.
class SplitWriter {
 public:
  SplitWriter(Path directory, TokenSetInfo info, bool split)
      : directory_(std::move(directory)), info_(std::move(info)), split_(split) {}

  void add(Part part, std::span<const int32_t> document, int64_t text_bytes, uint64_t hash);

  struct Result {
    TokenSetInfo train, val;  // val.tokens == 0 without a validation part
  };
  // Error{kInvalidArgument} if there are no documents.
  Result finish();

 private:
  static Part other(Part part) { return part == Part::train ? Part::val : Part::train; }
  static size_t index(Part part) { return part == Part::train ? 0 : 1; }
  Path path(Part part) const { return directory_ / (part == Part::train ? "train" : "val"); }
  int64_t& count(Part part) { return counts_[index(part)]; }
  TokenSetWriter& writer(Part part);
  Result move_lowest(Part from);

  Path directory_;
  TokenSetInfo info_;
  bool split_;
  std::optional<TokenSetWriter> writers_[2];
  int64_t counts_[2] = {};
  uint64_t lowest_hash_ = std::numeric_limits<uint64_t>::max();
  std::vector<int64_t> lowest_documents_, lowest_bytes_;  // with that hash: places in their part, bytes of text
};

}  // namespace loam
