// From prepared text to ids: pieces, the cache of pieces, and the model for those that are not in it.
#pragma once

#include <array>
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
  // `expected_bytes` sizes the caches. All that is given must outlive it.
  Encoder(const Pretokenizer& pretokenizer, const PieceModel& model, size_t expected_bytes)
      : pretokenizer_(pretokenizer),
        model_(model),
        expected_bytes_(expected_bytes),
        recent_(expected_bytes, kRecentBits) {}

  // Appends the ids of text[0, limit), normalized text without added tokens. `limit` is the end of a piece; what
  // follows it is context only.
  void encode(std::string_view text, size_t limit, std::vector<int32_t>& ids);
  // The same, and for each id the range of `text` that it stands for.
  void encode(std::string_view text, std::vector<int32_t>& ids, std::vector<TextRange>& ranges);

 private:
  static constexpr size_t kPiecesAtOnce = 512;              // enough that some ten of them are merged side by side
  static constexpr int kRecentBits = 14, kMergedBits = 15;  // 512 KiB and 2 MiB: a core's caches hold the first
  using Indices = std::span<const uint16_t>;                // of pieces at hand

  void encode_parts(std::string_view text, std::span<const Piece> pieces, std::vector<int32_t>& ids);
  void encode_whole(std::string_view text, std::span<const Piece> pieces, std::vector<int32_t>& ids);
  void find_rest(std::string_view text, std::span<const Piece> pieces, Indices missing);
  void merge_cold(std::string_view text, std::span<const Piece> pieces);
  void encode_piece(std::string_view text, size_t position, size_t length, std::vector<int32_t>& ids);
  void encode_part(std::string_view text, size_t position, size_t length, std::vector<int32_t>& ids);
  PieceEncoder& model_encoder();

  const Pretokenizer& pretokenizer_;
  const PieceModel& model_;
  size_t expected_bytes_;
  PieceCache<3> recent_;                   // 32 bytes a slot: all that lately came
  std::optional<PieceCache<11>> merged_;   // 64 bytes a slot: pieces that are not one token
  std::unique_ptr<PieceEncoder> encoder_;  // both made for the first of these

  std::vector<Piece> parts_;  // of pieces, some of which are long
  // Of the pieces at hand.
  std::array<PieceKey, kPiecesAtOnce> keys_;
  std::array<const PieceCache<3>::Slot*, kPiecesAtOnce> recent_slots_;
  std::array<const int32_t*, kPiecesAtOnce> sources_;        // how many ids each has, and the ids
  std::array<std::array<int32_t, 4>, kPiecesAtOnce> words_;  // the same, of those that are one token
  std::array<uint16_t, kPiecesAtOnce> others_;
  std::span<uint16_t> cold_;                 // of others_: neither cache holds them
  std::vector<std::string_view> cold_text_;  // of these
  std::vector<int32_t> made_, made_values_;  // their ids; the same with their counts
  std::vector<size_t> ends_;                 // in made_
};

}  // namespace loam
