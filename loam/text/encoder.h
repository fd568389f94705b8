// From text to ids: what a tokenizer prepares once, and the scratch memory of one call.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loam/text/merge_table.h"
#include "loam/text/merger.h"
#include "loam/text/piece_cache.h"
#include "loam/text/special_matcher.h"
#include "loam/text/spm_vocab.h"
#include "loam/text/tokenizer.h"

namespace loam {

// Thread safety: const after construction.
class EncodeTables {
 public:
  // Errors as those of Tokenizer.
  explicit EncodeTables(const BpeModel& model);
  explicit EncodeTables(const SpmModel& model);

  const Pretokenizer& pretokenizer() const { return pretokenizer_; }  // of byte-level BPE
  size_t stable_prefix(std::string_view text) const {
    return spm_ ? spm_->stable_prefix(text) : pretokenizer_.stable_prefix(text);
  }
  // The length of the front of a piece, a few thousand bytes where that can be, that no merge ever joins with the rest.
  size_t block_length(std::string_view piece) const;
  // The symbols of a piece before any merge.
  void split(std::string_view piece, std::vector<int32_t>& symbols) const;

  const MergeTable& merges() const { return merges_; }
  const WordTable& words() const { return words_; }
  const SpmVocab* spm() const { return spm_.get(); }
  bool add_space_prefix() const { return add_space_prefix_; }

 private:
  void find_words(const std::vector<std::string>& tokens);

  Pretokenizer pretokenizer_;
  std::array<int32_t, 256> byte_ids_{};
  std::bitset<65536> joined_bytes_;  // 256 * last byte of the left + first byte of the right part, for each merge
  std::unique_ptr<SpmVocab> spm_;    // null for byte-level BPE
  int32_t unknown_id_ = -1;
  bool byte_fallback_ = true;
  bool add_space_prefix_ = false;
  MergeTable merges_;
  WordTable words_;  // the tokens that are what their own bytes encode to
};

// Encodes for one caller. Not thread-safe: one a thread.
class Encoder {
 public:
  // `expected_bytes` sizes the cache.
  Encoder(const EncodeTables& tables, size_t expected_bytes)
      : tables_(tables), expected_bytes_(expected_bytes), merger_(tables.merges()) {}

  // Appends the ids of text[0, limit), text without special tokens. `limit` is the end of a piece; what follows it is
  // context only. `at_start`: the text begins a sequence or follows a special token, where a SentencePiece model puts
  // its space.
  void encode(std::string_view text, size_t limit, bool at_start, std::vector<int32_t>& out);

 private:
  void encode_spm(std::string_view text, size_t limit, bool at_start, std::vector<int32_t>& out);
  void encode_piece(std::string_view text, size_t position, size_t length, std::vector<int32_t>& out);
  void encode_long_piece(std::string_view piece, std::vector<int32_t>& out);
  void merge_piece(std::string_view piece);

  const EncodeTables& tables_;
  size_t expected_bytes_;
  Merger merger_;
  std::optional<PieceCache> cache_;  // made for the first piece that is not one token
  std::vector<int32_t> symbols_;
};

}  // namespace loam
