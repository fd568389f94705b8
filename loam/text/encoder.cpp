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
  for (const uint8_t i : missing) {
    words.prefetch(words.first_slot(keys_[i]));
    if (merged_) merged_->prefetch(merged_->slot_of(keys_[i]));
  }
  merging_.clear();
  merging_at_.clear();
  for (const uint8_t i : missing) {
    const std::string_view piece = text.substr(pieces[i].begin, pieces[i].length);
    const size_t before = many_.size();
    if (piece.size() > kMaxKeyBytes) {
      model_encoder().encode(piece, many_, nullptr);
      keep(i, before, many_.size());
    } else if (find_key(keys_[i], many_)) {
      keep(i, before, many_.size());
      recent_.insert(slots_[i], keys_[i], std::span(many_).subspan(before));
    } else {
      merging_.push_back(piece);
      merging_at_.push_back(i);
    }
  }
  if (merging_.empty()) return;
  ends_.clear();
  size_t begin = many_.size();
  model_encoder().encode_all(merging_, many_, ends_);
  for (size_t k = 0; k < merging_.size(); ++k) {
    const uint8_t i = merging_at_[k];
    keep(i, begin, ends_[k]);
    remember(keys_[i], slots_[i], std::span(many_).first(ends_[k]).subspan(begin));
    begin = ends_[k];
  }
}

// many_[begin, end) are the ids of piece `i`.
void Encoder::keep(size_t i, size_t begin, size_t end) {
  Few& few = found_[i];
  if (end - begin <= few.ids.size()) {
    few.count = static_cast<uint32_t>(end - begin);
    std::copy(many_.begin() + begin, many_.begin() + end, few.ids.begin());
  } else {
    few = {{static_cast<int32_t>(begin), static_cast<int32_t>(end)}, kMany};
  }
}

// Appends the ids of a piece that recent_ does not hold, if it is a word or was merged before.
bool Encoder::find_key(const PieceKey& key, std::vector<int32_t>& ids) {
  if (const int32_t id = model_.words().find(key); id >= 0) {
    ids.push_back(id);
    return true;
  }
  if (!merged_) merged_.emplace(expected_bytes_, 13);
  const auto& known = (*merged_)[merged_->slot_of(key)];
  if (known.key != key) return false;
  ids.insert(ids.end(), known.value.span().begin(), known.value.span().end());
  return true;
}

// For a piece that had to be merged; `slot` is its own in recent_.
void Encoder::remember(const PieceKey& key, size_t slot, std::span<const int32_t> ids) {
  merged_->insert(merged_->slot_of(key), key, ids);
  recent_.insert(slot, key, ids);
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
  const std::string_view part = text.substr(position, length);
  if (length > kMaxKeyBytes) return model_encoder().encode(part, ids, nullptr);
  const PieceKey key = PieceKey::of(text, position, length);
  const size_t at = recent_.slot_of(key), before = ids.size();
  if (const auto& slot = recent_[at]; slot.key == key) {
    ids.insert(ids.end(), slot.value.span().begin(), slot.value.span().end());
  } else if (find_key(key, ids)) {
    recent_.insert(at, key, std::span(ids).subspan(before));
  } else {
    model_encoder().encode(part, ids, nullptr);
    remember(key, at, std::span(ids).subspan(before));
  }
}

PieceEncoder& Encoder::model_encoder() {
  if (!encoder_) encoder_ = model_.make_encoder();
  return *encoder_;
}

}  // namespace loam
