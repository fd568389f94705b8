// SentencePiece BPE on one piece.
#include <array>

#include "loam/base/error.h"
#include "loam/base/utf8.h"
#include "loam/text/merge_table.h"
#include "loam/text/merger.h"
#include "loam/text/piece_model.h"
#include "loam/text/spm_vocab.h"
#include "loam/text/trie.h"

namespace loam {
namespace {

class SpmPieces final : public PieceModel {
 public:
  explicit SpmPieces(const SpmModel& model);

  std::unique_ptr<PieceEncoder> make_encoder() const override;

  const MergeTable& merges() const { return merges_; }
  // The symbols of a piece before any merge; the unknown token stands for one character, its length in `unknown`.
  void split(std::string_view piece, std::vector<int32_t>& symbols, std::vector<uint32_t>& unknown) const;
  int32_t unknown_id() const { return unknown_id_; }
  uint32_t token_length(int32_t id) const { return lengths_[static_cast<size_t>(id)]; }

 private:
  SpmVocab vocab_;
  Trie user_defined_;
  int32_t unknown_id_, first_byte_id_;
  MergeTable merges_;
  std::vector<uint32_t> lengths_;
};

class SpmEncoder final : public PieceEncoder {
 public:
  explicit SpmEncoder(const SpmPieces& model) : model_(model), merger_(model.merges()) {}

  void encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<uint32_t>* lengths) override {
    symbols_.clear();
    unknown_.clear();
    model_.split(piece, symbols_, unknown_);
    merger_.merge(symbols_);
    const size_t first = ids.size();
    size_t unknown = 0;
    for (const int32_t id : symbols_) {
      const bool is_unknown = id == model_.unknown_id();
      const uint32_t length = is_unknown ? unknown_[unknown++] : model_.token_length(id);
      if (is_unknown && model_.fused_id() >= 0 && ids.size() > first && ids.back() == id) {
        if (lengths) lengths->back() += length;
        continue;
      }
      ids.push_back(id);
      if (lengths) lengths->push_back(length);
    }
  }

 private:
  const SpmPieces& model_;
  Merger merger_;
  std::vector<int32_t> symbols_;
  std::vector<uint32_t> unknown_;
};

SpmPieces::SpmPieces(const SpmModel& model)
    : vocab_(model), unknown_id_(model.unknown_id), first_byte_id_(model.first_byte_id), merges_(vocab_.merges()) {
  std::vector<std::pair<std::string_view, int32_t>> user_defined;
  for (const int32_t id : model.user_defined) user_defined.emplace_back(model.tokens[static_cast<size_t>(id)], id);
  user_defined_ = Trie(std::move(user_defined));
  if (model.fuse_unknown) fused_id_ = unknown_id_;
  neighbours_ = std::make_unique<NeighbourSet>();
  std::vector<WordTable::Word> words;
  SpmEncoder encoder(*this);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < model.tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string& token = model.tokens[i];
    const bool byte = first_byte_id_ >= 0 && id >= first_byte_id_ && id < first_byte_id_ + 256;
    lengths_.push_back(byte ? 1 : static_cast<uint32_t>(token.size()));
  }
  for (size_t i = 0; i < model.tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string& token = model.tokens[i];
    if (token.empty() || (!vocab_.is_text(id) && user_defined_.find(token) != id)) continue;
    neighbours_->add_token(token);
    if (token.size() > kMaxKeyBytes) continue;
    ids.clear();
    encoder.encode(token, ids, nullptr);
    if (ids.size() == 1 && ids[0] == id) words.push_back({PieceKey::of(token, 0, token.size()), id});
  }
  words_ = WordTable(std::move(words));
}

void SpmPieces::split(std::string_view piece, std::vector<int32_t>& symbols, std::vector<uint32_t>& unknown) const {
  for (size_t i = 0; i < piece.size();) {
    if (const auto [whole, whole_id] = user_defined_.longest(piece.substr(i)); whole > 0) {
      symbols.push_back(whole_id);
      i += whole;
      continue;
    }
    const Utf8Char c = decode_utf8(piece, i);
    const auto length = static_cast<size_t>(c.length);
    const int32_t id = c.valid ? vocab_.character(c.code_point) : -1;
    if (id >= 0) {
      symbols.push_back(id);
    } else if (first_byte_id_ >= 0) {
      for (const char byte : piece.substr(i, length))
        symbols.push_back(first_byte_id_ + static_cast<unsigned char>(byte));
    } else {
      symbols.push_back(unknown_id_);
      unknown.push_back(static_cast<uint32_t>(length));
    }
    i += length;
  }
}

std::unique_ptr<PieceEncoder> SpmPieces::make_encoder() const { return std::make_unique<SpmEncoder>(*this); }

}  // namespace

std::unique_ptr<PieceModel> make_piece_model(const SpmModel& model) { return std::make_unique<SpmPieces>(model); }

}  // namespace loam
