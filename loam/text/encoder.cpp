#include "loam/text/encoder.h"

#include <array>

#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr size_t kPiecesAtOnce = 64;

// The end of the part from `position` on that no token reaches out of: at most the end of the piece.
size_t part_end(const NeighbourSet& neighbours, std::string_view text, size_t position, size_t end) {
  do {
    position += decode_utf8(text, position).length;
  } while (position < end && neighbours.contains(text[position - 1], text[position]));
  return std::min(position, end);
}

}  // namespace

void Encoder::encode(std::string_view text, size_t limit, std::vector<int32_t>& ids) {
  PieceCursor cursor(pretokenizer_, text, limit);
  std::array<Piece, kPiecesAtOnce> pieces;
  while (const size_t count = cursor.next(pieces)) {
    const auto some = std::span<const Piece>(pieces).first(count);
    if (!model_.neighbours()) {
      encode_whole(text, some, ids);
      continue;
    }
    for (const Piece& piece : some) encode_piece(text, piece.begin, piece.length, ids);
  }
}

// Pieces that no neighbours cut further: first all are looked for, then what was found comes from memory.
void Encoder::encode_whole(std::string_view text, std::span<const Piece> pieces, std::vector<int32_t>& ids) {
  std::array<PieceKey, kPiecesAtOnce> keys;
  std::array<size_t, kPiecesAtOnce> slots;
  const WordTable& words = model_.words();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].length > kMaxKeyBytes) continue;
    keys[i] = PieceKey::of(text, pieces[i].begin, pieces[i].length);
    slots[i] = words.first_slot(keys[i]);
    words.prefetch(slots[i]);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto [begin, length] = pieces[i];
    const int32_t id = length <= kMaxKeyBytes ? words.find_from(slots[i], keys[i]) : -1;
    if (id >= 0) {
      ids.push_back(id);
    } else if (length <= kMaxKeyBytes) {
      encode_key(text.substr(begin, length), keys[i], ids);
    } else {
      model_encoder().encode(text.substr(begin, length), ids, nullptr);
    }
  }
}

void Encoder::encode(std::string_view text, std::vector<int32_t>& ids, std::vector<TextRange>& ranges) {
  PieceCursor cursor(pretokenizer_, text);
  std::array<Piece, 64> pieces;
  std::vector<uint32_t> lengths;
  while (const size_t count = cursor.next(pieces)) {
    for (const Piece& piece : std::span(pieces).first(count)) {
      lengths.clear();
      model_encoder().encode(text.substr(piece.begin, piece.length), ids, &lengths);
      size_t at = piece.begin;
      for (const uint32_t length : lengths) {
        ranges.push_back({at, at + length});
        at += length;
      }
    }
  }
}

void Encoder::encode_piece(std::string_view text, size_t position, size_t length, std::vector<int32_t>& ids) {
  const NeighbourSet* neighbours = model_.neighbours();
  if (!neighbours) return encode_part(text, position, length, ids);
  const size_t first = ids.size(), end = position + length;
  while (position < end) {
    const size_t next = part_end(*neighbours, text, position, end), before = ids.size();
    encode_part(text, position, next - position, ids);
    const bool fuse = before > first && ids[before] == model_.fused_id() && ids[before - 1] == ids[before];
    if (fuse) ids.erase(ids.begin() + static_cast<int64_t>(before));
    position = next;
  }
}

void Encoder::encode_part(std::string_view text, size_t position, size_t length, std::vector<int32_t>& ids) {
  if (length > kMaxKeyBytes) return model_encoder().encode(text.substr(position, length), ids, nullptr);
  const PieceKey key = PieceKey::of(text, position, length);
  if (const int32_t id = model_.words().find(key); id >= 0) {
    ids.push_back(id);
  } else {
    encode_key(text.substr(position, length), key, ids);
  }
}

// A piece that is not one token.
void Encoder::encode_key(std::string_view piece, const PieceKey& key, std::vector<int32_t>& ids) {
  if (!cache_) cache_.emplace(expected_bytes_);
  const std::span<const int32_t> known = cache_->find(key);
  if (!known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
    return;
  }
  const size_t before = ids.size();
  model_encoder().encode(piece, ids, nullptr);
  cache_->insert(key, std::span(ids).subspan(before));
}

PieceEncoder& Encoder::model_encoder() {
  if (!encoder_) encoder_ = model_.make_encoder();
  return *encoder_;
}

}  // namespace loam
