#include "loam/text/encoder.h"

#include <algorithm>

#include "loam/base/error.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

void check_bpe(const BpeModel& model) {
  const int64_t size = static_cast<int64_t>(model.tokens.size());
  const auto check_id = [&](int32_t id, const char* what) {
    if (id < 0 || id >= size) fail(ErrorCode::kBadFormat, "tokenizer: {} id {} of {} tokens", what, id, size);
  };
  if (model.merges.size() != model.merge_ids.size()) {
    fail(ErrorCode::kBadFormat, "tokenizer: {} merges but {} results", model.merges.size(), model.merge_ids.size());
  }
  for (size_t i = 0; i < model.merges.size(); ++i) {
    const auto [left, right] = model.merges[i];
    check_id(left, "merge part");
    check_id(right, "merge part");
    check_id(model.merge_ids[i], "merge result");
    const std::string &a = model.tokens[left], &b = model.tokens[right], &made = model.tokens[model.merge_ids[i]];
    const bool joins =
        !a.empty() && !b.empty() && made.size() == a.size() + b.size() && made.starts_with(a) && made.ends_with(b);
    if (!joins)
      fail(ErrorCode::kBadFormat, "tokenizer: merge {} of {} and {} does not make {}", i, left, right,
           model.merge_ids[i]);
  }
  for (const SpecialToken& special : model.specials) {
    check_id(special.id, "special token");
    if (special.text.empty() || model.tokens[special.id] != special.text) {
      fail(ErrorCode::kBadFormat, "tokenizer: special token \"{}\" is not token {}", special.text, special.id);
    }
  }
}

constexpr size_t kBlockBytes = 4096;  // with all that merging keeps for it, this stays in the cache of a core

size_t byte_pair(char left, char right) {
  return size_t{256} * static_cast<unsigned char>(left) + static_cast<unsigned char>(right);
}

}  // namespace

EncodeTables::EncodeTables(const BpeModel& model)
    : pretokenizer_(model.pretokenizer),
      merges_(static_cast<int64_t>(model.merges.size())),
      words_(static_cast<int64_t>(model.tokens.size())) {
  check_bpe(model);
  std::vector<bool> special(model.tokens.size(), false);
  for (const SpecialToken& token : model.specials) special[token.id] = true;
  byte_ids_.fill(-1);
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id].size() != 1) continue;
    int32_t& byte_id = byte_ids_[static_cast<unsigned char>(model.tokens[id][0])];
    if (byte_id < 0 && !special[id]) byte_id = static_cast<int32_t>(id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] < 0) fail(ErrorCode::kBadFormat, "tokenizer: no token for the byte 0x{:02X}", byte);
  }
  for (size_t i = 0; i < model.merges.size(); ++i) {
    const auto [left, right] = model.merges[i];
    if (!merges_.insert(left, right, {static_cast<uint32_t>(i), model.merge_ids[i]})) {
      fail(ErrorCode::kBadFormat, "tokenizer: merge {} of {} and {} is there twice", i, left, right);
    }
    joined_bytes_.set(byte_pair(model.tokens[left].back(), model.tokens[right].front()));
  }
  find_words(model.tokens);
}

EncodeTables::EncodeTables(const SpmModel& model)
    : spm_(std::make_unique<SpmVocab>(model)),
      unknown_id_(model.unknown_id),
      byte_fallback_(model.first_byte_id >= 0),
      add_space_prefix_(model.add_space_prefix),
      merges_(static_cast<int64_t>(spm_->merges().size())),
      words_(static_cast<int64_t>(model.tokens.size())) {
  for (int byte = 0; byte < 256; ++byte) byte_ids_[byte] = byte_fallback_ ? model.first_byte_id + byte : unknown_id_;
  for (const SpmMerge& merge : spm_->merges()) merges_.insert(merge.left, merge.right, {merge.rank, merge.made});
  find_words(model.tokens);
}

size_t EncodeTables::block_length(std::string_view piece) const {
  if (spm_) return piece.size();
  size_t length = std::min(kBlockBytes, piece.size());
  while (length < piece.size() && joined_bytes_[byte_pair(piece[length - 1], piece[length])]) ++length;
  return length;
}

void EncodeTables::split(std::string_view piece, std::vector<int32_t>& symbols) const {
  symbols.clear();
  symbols.reserve(piece.size());
  if (!spm_) {
    for (const char c : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return;
  }
  for (size_t i = 0; i < piece.size();) {
    const Utf8Char c = decode_utf8(piece, i);
    const int32_t id = c.valid ? spm_->character(c.code_point) : -1;
    if (id >= 0) {
      symbols.push_back(id);
    } else if (byte_fallback_) {
      for (int k = 0; k < c.length; ++k) symbols.push_back(byte_ids_[static_cast<unsigned char>(piece[i + k])]);
    } else {
      symbols.push_back(unknown_id_);
    }
    i += c.length;
  }
}

void EncodeTables::find_words(const std::vector<std::string>& tokens) {
  Merger merger(merges_);
  std::vector<int32_t> symbols;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty() || tokens[id].size() > kMaxKeyBytes) continue;
    split(tokens[id], symbols);
    merger.merge(symbols);
    if (symbols.size() == 1 && symbols[0] == static_cast<int32_t>(id)) {
      words_.insert(PieceKey::of(tokens[id], 0, tokens[id].size()), symbols[0]);
    }
  }
}

void Encoder::encode(std::string_view text, size_t limit, bool at_start, std::vector<int32_t>& out) {
  if (tables_.spm()) return encode_spm(text, limit, at_start, out);
  PieceCursor cursor(tables_.pretokenizer(), text, limit);
  std::array<Piece, 64> pieces;
  while (const size_t count = cursor.next(pieces)) {
    for (const Piece& piece : std::span(pieces).first(count)) encode_piece(text, piece.begin, piece.length, out);
  }
}

void Encoder::encode_spm(std::string_view text, size_t limit, bool at_start, std::vector<int32_t>& out) {
  size_t position = 0;
  if (at_start && limit > 0 && tables_.add_space_prefix()) {
    position = tables_.spm()->next_piece(text, 0);
    const std::string first = " " + std::string(text.substr(0, position));
    encode_piece(first, 0, first.size(), out);
  }
  while (position < limit) {
    const size_t length = tables_.spm()->next_piece(text, position);
    encode_piece(text, position, length, out);
    position += length;
  }
}

void Encoder::encode_piece(std::string_view text, size_t position, size_t length, std::vector<int32_t>& out) {
  if (length > kMaxKeyBytes) {
    encode_long_piece(text.substr(position, length), out);
    return;
  }
  const PieceKey key = PieceKey::of(text, position, length);
  if (const int32_t id = tables_.words().find(key); id >= 0) {
    out.push_back(id);
    return;
  }
  if (!cache_) cache_.emplace(expected_bytes_);
  std::span<const int32_t> ids = cache_->find(key);
  if (ids.empty()) {
    merge_piece(text.substr(position, length));
    cache_->insert(key, symbols_);
    ids = symbols_;
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

void Encoder::encode_long_piece(std::string_view piece, std::vector<int32_t>& out) {
  while (!piece.empty()) {
    const size_t length = tables_.block_length(piece);
    merge_piece(piece.substr(0, length));
    out.insert(out.end(), symbols_.begin(), symbols_.end());
    piece.remove_prefix(length);
  }
}

// Leaves the ids in symbols_.
void Encoder::merge_piece(std::string_view piece) {
  tables_.split(piece, symbols_);
  merger_.merge(symbols_);
}

}  // namespace loam
