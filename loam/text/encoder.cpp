#include "loam/text/encoder.h"

#include <array>

#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr uint32_t kMany = UINT32_MAX;
constexpr PieceKey kNoKey{0, uint64_t{0xFF} << 56};  // of no piece and no slot

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

// Pieces that no neighbours cut further. Each step is done for all of them, so that what one needs from memory comes
// while the others are worked on, and so that no step branches on whether a piece is known.
void Encoder::encode_whole(std::string_view text, std::span<const Piece> pieces, std::vector<int32_t>& ids) {
  const size_t count = pieces.size();
  for (size_t i = 0; i < count; ++i) {
    const auto [begin, length] = pieces[i];
    keys_[i] = length <= kMaxKeyBytes ? PieceKey::of(text, begin, length) : kNoKey;
    slots_[i] = recent_.slot_of(keys_[i]);
    recent_.prefetch(slots_[i]);
  }
  std::array<uint8_t, kPiecesAtOnce> missing;
  size_t misses = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto& slot = recent_[slots_[i]];
    found_[i] = slot.value;
    missing[misses] = static_cast<uint8_t>(i);
    misses += slot.key != keys_[i];
  }
  many_.clear();
  find_rest(text, pieces, std::span(missing).first(misses));
  std::array<int32_t, 3 * kPiecesAtOnce> out;
  size_t written = 0;
  for (size_t i = 0; i < count; ++i) {
    const Few& few = found_[i];
    if (few.count == kMany) [[unlikely]] {
      ids.insert(ids.end(), out.begin(), out.begin() + written);
      ids.insert(ids.end(), many_.begin() + few.ids[0], many_.begin() + few.ids[1]);
      written = 0;
      continue;
    }
    std::copy(few.ids.begin(), few.ids.end(), &out[written]);
    written += few.count;
  }
  ids.insert(ids.end(), out.begin(), out.begin() + written);
}

// Fills found_ for the pieces that recent_ did not hold.
void Encoder::find_rest(std::string_view text, std::span<const Piece> pieces, std::span<const uint8_t> missing) {
  const WordTable& words = model_.words();
  for (const uint8_t i : missing) words.prefetch(words.first_slot(keys_[i]));
  for (const uint8_t i : missing) {
    const std::string_view piece = text.substr(pieces[i].begin, pieces[i].length);
    const size_t before = many_.size();
    if (piece.size() <= kMaxKeyBytes) {
      encode_key(piece, keys_[i], slots_[i], many_);
    } else {
      model_encoder().encode(piece, many_, nullptr);
    }
    const size_t count = many_.size() - before;
    if (count <= found_[i].ids.size()) {
      found_[i].count = static_cast<uint32_t>(count);
      std::copy(many_.begin() + before, many_.end(), found_[i].ids.begin());
    } else {
      found_[i] = {{static_cast<int32_t>(before), static_cast<int32_t>(many_.size())}, kMany};
    }
  }
}

// A piece that recent_ does not hold at `slot`, which is its own.
void Encoder::encode_key(std::string_view piece, const PieceKey& key, size_t slot, std::vector<int32_t>& ids) {
  const size_t before = ids.size();
  if (const int32_t id = model_.words().find(key); id >= 0) {
    ids.push_back(id);
  } else {
    if (!merged_) merged_.emplace(expected_bytes_, 13);
    const size_t place = merged_->slot_of(key);
    if (const auto& known = (*merged_)[place]; known.key == key) {
      ids.insert(ids.end(), known.value.span().begin(), known.value.span().end());
    } else {
      model_encoder().encode(piece, ids, nullptr);
      merged_->insert(place, key, std::span(ids).subspan(before));
    }
  }
  recent_.insert(slot, key, std::span(ids).subspan(before));
}

void Encoder::encode(std::string_view text, std::vector<int32_t>& ids, std::vector<TextRange>& ranges) {
  PieceCursor cursor(pretokenizer_, text);
  std::array<Piece, kPiecesAtOnce> pieces;
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
  const size_t at = recent_.slot_of(key);
  if (const auto& slot = recent_[at]; slot.key == key) {
    ids.insert(ids.end(), slot.value.span().begin(), slot.value.span().end());
  } else {
    encode_key(text.substr(position, length), key, at, ids);
  }
}

PieceEncoder& Encoder::model_encoder() {
  if (!encoder_) encoder_ = model_.make_encoder();
  return *encoder_;
}

}  // namespace loam
