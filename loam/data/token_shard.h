// Token shards: what training reads. A set is a directory with index.json and shard files shard-00000.tok, ...
//
// A shard file, all little-endian: 64-byte header {8 bytes "LOAMTOK1", u32 bytes per token (2 or 4), u32 0, u64 tokens,
// u64 documents, u64 XXH3-64 of all that follows the header, 24 bytes 0}, then the tokens, padding with 0 to 8 bytes,
// then `documents` u64: the index of each document's first token in this shard, ascending, the first 0. No document is
// cut by the end of a shard. What tokens stand at a document's ends is the writer's business. 2 bytes a token if the
// vocabulary has at most 65,536 ids.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/mmap.h"

namespace loam {

inline constexpr std::string_view kTokenShardMagic = "LOAMTOK1";  // what a shard file begins with

struct TokenSetInfo {
  std::string tokenizer_fingerprint;
  int64_t vocab_size = 0;
  int32_t end_of_text = -1;
  int64_t tokens = 0, documents = 0;
  int64_t text_bytes = 0;  // of the documents' text: for bits a byte
};

// Writes a set; nothing is there before finish(). Memory: the offsets of one shard's documents and a buffer. `info`
// gives fingerprint, vocabulary and end_of_text. A shard is closed when the next document would take it past
// `shard_tokens`.
class TokenSetWriter {
 public:
  TokenSetWriter(Path directory, TokenSetInfo info, int64_t shard_tokens = int64_t{100} << 20);
  ~TokenSetWriter();
  // A document of at least one token. Error{kInvalidArgument} for an empty one or an id outside the vocabulary.
  void add(std::span<const int32_t> document, int64_t text_bytes);
  TokenSetInfo finish();  // writes index.json last; Error{kInvalidArgument} if nothing was added

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One memory-mapped stream over all shards of a set. Headers, sizes and offsets are checked on opening
// (Error{kBadFormat}); contents by verify(). A file that is cut while it is read is Error{kIo}. Thread safety: const
// members may be called from any thread.
class TokenSet {
 public:
  explicit TokenSet(const Path& directory);
  ~TokenSet();
  TokenSet(TokenSet&&) noexcept;

  const TokenSetInfo& info() const;
  int64_t tokens() const { return info().tokens; }
  // Copies tokens [begin, begin + out.size()) of the stream.
  void read(int64_t begin, std::span<int32_t> out) const;
  // Index of the document that holds token `position`, and the position of a document's first token (document ==
  // documents: the end).
  int64_t document_of(int64_t position) const;
  int64_t document_begin(int64_t document) const;
  void verify() const;              // hashes and id ranges
  std::string fingerprint() const;  // of the shards' headers and names

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
