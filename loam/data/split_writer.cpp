#include "loam/data/split_writer.h"

#include <utility>

#include "loam/base/error.h"
#include "loam/base/hash.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/text/tokenizer_files.h"

namespace loam {

const std::vector<std::string> kDataDirectoryContents = {"train/index.json", "train/shard-*.tok", "val/index.json",
                                                         "val/shard-*.tok", "tokenizer.json"};

uint64_t split_hash(std::string_view contents) {
  constexpr uint64_t kSeed = 0x76616C;
  return hash64(contents, kSeed);
}

Part part_of(uint64_t hash, double val_fraction) {
  const double uniform = static_cast<double>(hash >> 11) * 0x1p-53;
  return uniform < val_fraction ? Part::val : Part::train;
}

TokenSetInfo info_of(const Tokenizer& tokenizer) {
  TokenSetInfo info;
  info.tokenizer_fingerprint = tokenizer.fingerprint();
  info.vocab_size = tokenizer.vocab_size();
  info.end_of_text = tokenizer.end_of_text_id();
  return info;
}

WrittenTokenizer::WrittenTokenizer(const Tokenizer& given)
    : text(tokenizer_json(given)), tokenizer(parse_tokenizer_json(text, "tokenizer.json as it is written")) {
  if (tokenizer.fingerprint() != given.fingerprint())
    log_warn("a tokenizer.json does not hold all of this tokenizer; the nearest that it holds is used");
}

void SplitWriter::add(Part part, std::span<const int32_t> document, int64_t text_bytes, uint64_t hash) {
  if (hash < lowest_hash_) {
    lowest_hash_ = hash;
    lowest_documents_.clear();
    lowest_bytes_.clear();
  }
  if (hash == lowest_hash_) {
    lowest_documents_.push_back(count(part));
    lowest_bytes_.push_back(text_bytes);
  }
  writer(part).add(document, text_bytes);
  ++count(part);
}

SplitWriter::Result SplitWriter::finish() {
  LOAM_CHECK(count(Part::train) + count(Part::val) > 0, "there are no documents in the inputs");
  if (split_ && count(Part::val) == 0) return move_lowest(Part::train);
  if (split_ && count(Part::train) == 0) return move_lowest(Part::val);
  Result result;
  result.train = writer(Part::train).finish();
  if (split_) result.val = writer(Part::val).finish();
  return result;
}

TokenSetWriter& SplitWriter::writer(Part part) {
  auto& writer = writers_[index(part)];
  if (!writer) writer.emplace(path(part), info_);
  return *writer;
}

// All documents are in `from`: writes it again as two sets.
SplitWriter::Result SplitWriter::move_lowest(Part from) {
  const TokenSetInfo all = writer(from).finish();
  const Path aside = directory_ / ".all";
  std::filesystem::rename(path(from), aside);
  writers_[index(from)].reset();
  const bool all_equal = std::ssize(lowest_documents_) == all.documents;
  const size_t moved = all_equal ? 1 : lowest_documents_.size();
  int64_t bytes_left = all.text_bytes;
  for (size_t i = 0; i < moved; ++i) bytes_left -= lowest_bytes_[i];
  {
    const TokenSet set(aside);
    std::vector<int32_t> ids;
    size_t next = 0;  // of those that move
    for (int64_t document = 0; document < all.documents; ++document) {
      check_interrupt();
      const int64_t begin = set.document_begin(document);
      ids.resize(static_cast<size_t>(set.document_begin(document + 1) - begin));
      set.read(begin, ids);
      const bool moves = next < moved && document == lowest_documents_[next];
      // Bytes are kept only as a sum: the first document left behind carries those of all.
      writer(moves ? other(from) : from).add(ids, moves ? lowest_bytes_[next] : std::exchange(bytes_left, 0));
      if (moves) ++next;
    }
  }
  std::filesystem::remove_all(aside);
  return {writer(Part::train).finish(), writer(Part::val).finish()};
}

}  // namespace loam
