#include "loam/text/encoder.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr size_t kLongWithoutSpaces = 6;             // bytes: two characters of Chinese, Japanese, Thai, ...
constexpr size_t kMostRecent = 3;                    // ids in a slot of recent_
constexpr PieceKey kNoKey{0, uint64_t{0xFF} << 56};  // of no piece and no slot

// Whether the byte begins a character of three bytes or more.
bool is_wide(char c) { return static_cast<unsigned char>(c) >= 0xE0; }

// The same of any byte, eight at a time: a byte whose three highest bits are set.
bool has_wide_characters(std::string_view text) {
  constexpr uint64_t kHighest = 0x8080808080808080;
  uint64_t found = 0;
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + at, 8);
    found |= bytes & bytes << 1 & bytes << 2;
  }
  return (found & kHighest) != 0 || std::any_of(text.begin() + static_cast<int64_t>(at), text.end(), is_wide);
}

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
      encode_parts(text, some, ids);
      continue;
    }
    for (const Piece& piece : some) encode_piece(text, piece.begin, piece.length, ids);
  }
}

// Pieces that no neighbours cut further; but where some are long, each of these is cut if the model can, so that its
// parts are found again.
void Encoder::encode_parts(std::string_view text, std::span<const Piece> pieces, std::vector<int32_t>& ids) {
  size_t longest = 0;
  for (const Piece& piece : pieces) longest = std::max(longest, piece.length);
  const size_t begin = pieces.front().begin;
  if (longest <= kMaxKeyBytes && !has_wide_characters(text.substr(begin, pieces.back().end() - begin)))
    return encode_whole(text, pieces, ids);
  const auto is_long = [&](const Piece& piece) {
    if (piece.length <= kLongWithoutSpaces || piece.length > kMaxKeyBytes) return piece.length > kMaxKeyBytes;
    return is_wide(text[piece.end() - 3]);
  };
  parts_.clear();
  for (const Piece& piece : pieces) {
    if (is_long(piece)) {
      model_.cut(text, piece, parts_);
    } else {
      parts_.push_back(piece);
    }
  }
  for (size_t i = 0; i < parts_.size(); i += kPiecesAtOnce) {
    encode_whole(text, std::span<const Piece>(parts_).subspan(i, std::min(kPiecesAtOnce, parts_.size() - i)), ids);
  }
}

// Each step is done for all of them, so that what one needs from memory comes
// while the others are worked on, and so that no step branches on what is known of a piece.
void Encoder::encode_whole(std::string_view text, std::span<const Piece> pieces, std::vector<int32_t>& ids) {
  const size_t count = pieces.size();
  for (size_t i = 0; i < count; ++i) {
    const auto [begin, length] = pieces[i];
    keys_[i] = length <= kMaxKeyBytes ? PieceKey::of(text, begin, length) : kNoKey;
    recent_slots_[i] = &recent_.slot(keys_[i]);
    __builtin_prefetch(recent_slots_[i]);
  }
  std::array<uint16_t, kPiecesAtOnce> rest;
  size_t misses = 0;
  for (size_t i = 0; i < count; ++i) {
    sources_[i] = recent_slots_[i]->value.data();
    rest[misses] = static_cast<uint16_t>(i);
    misses += recent_slots_[i]->key != keys_[i];
  }
  const auto missing = Indices(rest).first(misses);
  cold_ = {};
  if (misses > 0) find_rest(text, pieces, missing);
  std::array<int32_t, kMaxKeyBytes * kPiecesAtOnce + kMostRecent> out;
  size_t written = 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t* source = sources_[i];
    const auto size = static_cast<size_t>(source[0]);
    std::memcpy(&out[written], source + 1, kMostRecent * sizeof(int32_t));
    if (size > kMostRecent) [[unlikely]] {
      if (size > kMaxKeyBytes) {
        ids.insert(ids.end(), out.begin(), out.begin() + written);
        ids.insert(ids.end(), source + 1, source + 1 + size);
        written = 0;
        continue;
      }
      std::copy(source + 1, source + 1 + size, &out[written]);
    }
    written += size;
  }
  ids.insert(ids.end(), out.begin(), out.begin() + written);
  // Only now, as sources_ are slots.
  const auto insert = [&](auto& cache, uint16_t i) {
    if (keys_[i] == kNoKey) return;
    cache.insert(keys_[i], std::span(sources_[i] + 1, static_cast<size_t>(sources_[i][0])));
  };
  for (const uint16_t i : missing) insert(recent_, i);
  for (const uint16_t i : cold_) insert(*merged_, i);
}

// Finds the ids of pieces that recent_ does not hold.
void Encoder::find_rest(std::string_view text, std::span<const Piece> pieces, Indices missing) {
  const WordTable& words = model_.words();
  for (const uint16_t i : missing) words.prefetch(keys_[i]);
  size_t count = 0;
  for (const uint16_t i : missing) {
    const int32_t id = words.find(keys_[i]);
    words_[i] = {1, id};
    sources_[i] = words_[i].data();
    others_[count] = i;
    count += id < 0;
  }
  if (count == 0) return;
  if (!merged_) merged_.emplace(expected_bytes_, kMergedBits);
  std::array<const PieceCache<11>::Slot*, kPiecesAtOnce> slots;
  for (size_t k = 0; k < count; ++k) {
    slots[k] = &merged_->slot(keys_[others_[k]]);
    __builtin_prefetch(slots[k]);
  }
  size_t cold = 0;
  for (size_t k = 0; k < count; ++k) {
    const uint16_t i = others_[k];
    sources_[i] = slots[k]->value.data();
    others_[cold] = i;
    cold += slots[k]->key != keys_[i];
  }
  cold_ = std::span(others_).first(cold);
  if (cold > 0) merge_cold(text, pieces);
}

// Has the model encode pieces that neither cache holds.
void Encoder::merge_cold(std::string_view text, std::span<const Piece> pieces) {
  made_.clear();
  cold_text_.clear();
  ends_.clear();
  const auto text_of = [&](uint16_t i) { return text.substr(pieces[i].begin, pieces[i].length); };
  const auto first_long = std::partition(cold_.begin(), cold_.end(), [&](uint16_t i) { return !(keys_[i] == kNoKey); });
  for (const uint16_t i : cold_.first(first_long - cold_.begin())) cold_text_.push_back(text_of(i));
  model_encoder().encode_all(cold_text_, made_, ends_);
  for (const uint16_t i : cold_.last(cold_.end() - first_long)) {
    model_encoder().encode(text_of(i), made_, nullptr);
    ends_.push_back(made_.size());
  }
  made_values_.resize(made_.size() + cold_.size() + kMostRecent);  // what reads them may read so many
  int32_t* to = made_values_.data();
  size_t begin = 0;
  for (size_t k = 0; k < cold_.size(); ++k) {
    const auto made = std::span(made_).first(ends_[k]).subspan(begin);
    *to = static_cast<int32_t>(made.size());
    std::copy(made.begin(), made.end(), to + 1);
    sources_[cold_[k]] = to;
    to += 1 + made.size();
    begin = ends_[k];
  }
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
  const size_t before = ids.size();
  if (const auto& slot = recent_.slot(key); slot.key == key) {
    ids.insert(ids.end(), slot.value.begin() + 1, slot.value.begin() + 1 + slot.value[0]);
    return;
  }
  if (const int32_t id = model_.words().find(key); id >= 0) {
    ids.push_back(id);
  } else {
    if (!merged_) merged_.emplace(expected_bytes_, kMergedBits);
    if (const auto& slot = merged_->slot(key); slot.key == key) {
      ids.insert(ids.end(), slot.value.begin() + 1, slot.value.begin() + 1 + slot.value[0]);
    } else {
      model_encoder().encode(part, ids, nullptr);
      merged_->insert(key, std::span(ids).subspan(before));
    }
  }
  recent_.insert(key, std::span(ids).subspan(before));
}

PieceEncoder& Encoder::model_encoder() {
  if (!encoder_) encoder_ = model_.make_encoder();
  return *encoder_;
}

}  // namespace loam
