// What a SentencePiece vocabulary implies: which pairs merge, and in which order.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "loam/text/merge_table.h"
#include "loam/text/tokenizer_model.h"

namespace loam {

class SpmVocab {
 public:
  // Error{kBadFormat}: counts that differ, ids out of range, a score that is no number, byte tokens that are not <0x00>
  // ... <0xFF>, a token of more than 1024 bytes,
  // a listed merge that makes no token.
  explicit SpmVocab(const SpmModel& model);

  // Those that the model lists; without a list every way to put a token together from two others, by falling score,
  // then by the ids of the parts.
  const std::vector<RankedMerge>& merges() const { return merges_; }
  // Control tokens, added tokens and byte tokens are never made from text.
  bool is_text(int32_t id) const { return text_[static_cast<size_t>(id)]; }
  // The token of one character, -1 if none.
  int32_t character(uint32_t code_point) const;

 private:
  void derive_merges(const SpmModel& model);
  void take_merges(const SpmModel& model);

  std::vector<bool> text_;
  std::vector<RankedMerge> merges_;
  std::unordered_map<uint32_t, int32_t> characters_;
};

// Checks 256 byte tokens <0x00> ... <0xFF> from `first` on; -1 means that there are none. Error{kBadFormat}.
void check_byte_tokens(const std::vector<std::string>& tokens, int32_t first);

}  // namespace loam
