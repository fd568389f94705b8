// From prepared text to ids: pieces, the cache of pieces, and the model for those that are not in it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "loam/text/piece_cache.h"
#include "loam/text/piece_model.h"
#include "loam/text/pretokenizer.h"

namespace loam {

// Encodes for one caller. Not thread-safe: one a thread.
class Encoder {
 public:
  // `expected_bytes` sizes the cache. All that is given must outlive it.
  Encoder(const Pretokenizer& pretokenizer, const PieceModel& model, size_t expected_bytes)
      : pretokenizer_(pretokenizer), model_(model), expected_bytes_(expected_bytes) {}

  // Appends the ids of text[0, limit), normalized text without added tokens. `limit` is the end of a piece; what
  // follows it is context only.
  void encode(std::string_view text, size_t limit, std::vector<int32_t>& ids);
  // The same, and for each id the range of `text` that it stands for.
  void encode(std::string_view text, std::vector<int32_t>& ids, std::vector<TextRange>& ranges);

 private:
  void encode_piece(std::string_view text, size_t position, size_t length, std::vector<int32_t>& ids);
  void encode_whole(std::string_view text, std::span<const Piece> pieces, std::vector<int32_t>& ids);
  void encode_key(std::string_view piece, const PieceKey& key, std::vector<int32_t>& ids);
  void encode_part(std::string_view text, size_t position, size_t length, std::vector<int32_t>& ids);
  PieceEncoder& model_encoder();

  const Pretokenizer& pretokenizer_;
  const PieceModel& model_;
  size_t expected_bytes_;
  std::unique_ptr<PieceEncoder> encoder_;  // both made for the first piece that is not one token
  std::optional<PieceCache> cache_;
};

}  // namespace loam
