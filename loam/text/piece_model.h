// From one piece of text to ids: what each kind of model does. Internal to the tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "loam/text/matcher.h"
#include "loam/text/neighbour_set.h"
#include "loam/text/piece_cache.h"
#include "loam/text/tokenizer_model.h"

namespace loam {

// Encodes pieces for one caller, with the scratch memory that it needs. Not thread-safe: one a thread.
class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;
  // Appends the ids of `piece`, which is not empty, and, unless `lengths` is null, how many of its bytes each stands
  // for.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<uint32_t>* lengths) = 0;
  // Several pieces of at most kMaxKeyBytes, none of which is in words(): appends the ids of all, and for each where its
  // ids end.
  virtual void encode_all(std::span<const std::string_view> pieces, std::vector<int32_t>& ids,
                          std::vector<size_t>& ends) {
    for (const std::string_view piece : pieces) {
      encode(piece, ids, nullptr);
      ends.push_back(ids.size());
    }
  }
};

// Thread safety: const after construction.
class PieceModel {
 public:
  virtual ~PieceModel() = default;
  virtual std::unique_ptr<PieceEncoder> make_encoder() const = 0;

  // Tokens of up to kMaxKeyBytes that are what their own text encodes to. May be empty.
  const WordTable& words() const { return words_; }
  // Inside a piece, text can be cut between characters that are no neighbours here; null: only pieces can.
  const NeighbourSet* neighbours() const { return neighbours_.get(); }
  // Appends parts of text[piece] whose ids, one part after another, are those of the piece; by default only itself.
  virtual void cut(std::string_view /*text*/, Piece piece, std::vector<Piece>& parts) const { parts.push_back(piece); }
  // Some bytes have no token: they are left out, or, where no UTF-8 holds them, become U+FFFD.
  bool lacks_bytes() const { return lacks_bytes_; }
  // The token of which several in a row, inside a piece, are one; -1 if there is none.
  int32_t fused_id() const { return fused_id_; }

 protected:
  WordTable words_;
  std::unique_ptr<NeighbourSet> neighbours_;
  int32_t fused_id_ = -1;
  bool lacks_bytes_ = false;
};

// Error{kBadFormat} as Tokenizer's constructor. The model is copied as far as it is needed.
std::unique_ptr<PieceModel> make_piece_model(const BpeModel& model);
std::unique_ptr<PieceModel> make_piece_model(const SpmModel& model);
std::unique_ptr<PieceModel> make_piece_model(const UnigramModel& model);
std::unique_ptr<PieceModel> make_piece_model(const WordPieceModel& model);
std::unique_ptr<PieceModel> make_piece_model(const WordModel& model);

}  // namespace loam
