// What a SentencePiece vocabulary with scores implies: which pairs merge and in which order, and where no token can
// reach across.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loam/text/tokenizer.h"

namespace loam {

struct SpmMerge {
  int32_t left, right, made;
  uint32_t rank;  // 0 for the best score; equal scores share one
};

class SpmVocab {
 public:
  // Error{kBadFormat}: counts that differ, ids out of range, a score that is no number, byte tokens that are not <0x00>
  // ... <0xFF>, a token of more than 1024 bytes.
  explicit SpmVocab(const SpmModel& model);

  // Every way to put a token together from two others: by falling score, then by the ids of the parts.
  const std::vector<SpmMerge>& merges() const { return merges_; }
  // Control and byte tokens are never made from text.
  bool is_text(int32_t id) const;
  // The token of one character, -1 if none.
  int32_t character(uint32_t code_point) const;
  // The length of the stretch from `position` on that no token reaches out of, so that it can be encoded alone.
  size_t next_piece(std::string_view text, size_t position) const;
  // How many bytes at the front are such stretches, whatever follows.
  size_t stable_prefix(std::string_view text) const;

 private:
  void derive_merges(const SpmModel& model);

  int32_t unknown_id_, bos_id_, eos_id_, first_byte_id_;
  std::vector<SpmMerge> merges_;
  std::unordered_map<uint32_t, int32_t> characters_;
  std::bitset<65536>
      joined_;  // [last byte of a character << 8 | first byte of the next]: some token holds these neighbours
};

}  // namespace loam
