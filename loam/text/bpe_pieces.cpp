// Byte-level BPE on one piece.
#include <algorithm>
#include <array>
#include <bitset>
#include <unordered_map>

#include "loam/base/error.h"
#include "loam/base/log.h"
#include "loam/base/utf8.h"
#include "loam/text/merge_cuts.h"
#include "loam/text/merge_lanes.h"
#include "loam/text/merge_table.h"
#include "loam/text/merger.h"
#include "loam/text/piece_model.h"

namespace loam {
namespace {

constexpr size_t kBlockBytes = 4096;  // with all that merging keeps for it, this stays in the cache of a core

// A vocabulary has no tokens for bytes that its corpus did not hold: those that are in no UTF-8 (GPT-NeoX, OLMo), some
// control characters (Falcon), the first byte of planes that are not in use (StarCoder).
bool is_never_in_utf8(int byte) { return byte == 0xC0 || byte == 0xC1 || byte >= 0xF5; }
bool is_printable_ascii(int byte) { return byte >= ' ' && byte <= '~'; }

void check_bpe(const BpeModel& model) {
  const int64_t size = static_cast<int64_t>(model.tokens.size());
  if (size > kMaxTokens) fail(ErrorCode::kBadFormat, "tokenizer: {} tokens, more than {}", size, kMaxTokens);
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
}

std::vector<RankedMerge> checked_merges(const BpeModel& model) {
  check_bpe(model);
  std::vector<RankedMerge> merges;
  for (size_t i = 0; i < model.merges.size(); ++i)
    merges.push_back({model.merges[i].first, model.merges[i].second, static_cast<uint32_t>(i), model.merge_ids[i]});
  return merges;
}

class BpePieces final : public PieceModel {
 public:
  explicit BpePieces(const BpeModel& model);

  std::unique_ptr<PieceEncoder> make_encoder() const override;
  void cut(std::string_view text, Piece piece, std::vector<Piece>& parts) const override;

  const MergeTable& merges() const { return merges_; }
  const BytePairs& byte_pairs() const { return byte_pairs_; }
  // The piece as one token, if it is one that no merges make; -1 otherwise.
  int32_t unmade(std::string_view piece) const {
    const auto found = unmade_.find(piece);
    return found == unmade_.end() ? -1 : found->second;
  }
  void split(std::string_view piece, std::vector<int32_t>& symbols) const {
    for (const char c : piece) symbols.push_back(byte_pairs_.ids[static_cast<unsigned char>(c)]);
  }
  // Whether the piece has a byte without a token. As in Hugging Face's library it is left out; but what is in no UTF-8,
  // and does not come so far there, becomes U+FFFD.
  bool lacks(std::string_view piece) const {
    return lacks_bytes_ &&
           std::any_of(piece.begin(), piece.end(), [&](char c) { return lacking_[static_cast<unsigned char>(c)]; });
  }
  // The text that is encoded instead; the place that each byte of it comes from, and the end; and whether nothing was
  // left out.
  std::string replaced(std::string_view piece, std::vector<uint32_t>& from, bool& whole) const;
  // The length of the front of a piece, a few thousand bytes where that can be, that no merge ever joins with the rest.
  size_t block_length(std::string_view piece) const {
    size_t length = std::min(kBlockBytes, piece.size());
    while (length < piece.size() && !cuts_.is_cut(piece, length)) ++length;
    return length;
  }
  uint32_t token_length(int32_t id) const { return static_cast<uint32_t>(tokens_[static_cast<size_t>(id)].size()); }

 private:
  void find_byte_ids(const BpeModel& model, const std::vector<bool>& special);
  void find_words(const BpeModel& model, const std::vector<bool>& special);

  BytePairs byte_pairs_;
  std::bitset<256> lacking_;
  MergeCuts cuts_;
  MergeTable merges_;
  std::vector<std::string> tokens_;
  // Of tokens_: with ignore_merges, the ones that their merges do not make.
  std::unordered_map<std::string_view, int32_t> unmade_;
};

class BpeEncoder final : public PieceEncoder {
 public:
  explicit BpeEncoder(const BpePieces& model) : model_(model), merger_(model.merges()), lanes_(model.merges()) {}

  void encode_all(std::span<const std::string_view> pieces, std::vector<int32_t>& ids,
                  std::vector<size_t>& ends) override {
    const auto lacks = [&](std::string_view piece) { return model_.lacks(piece); };
    if (!model_.words().is_complete() || std::any_of(pieces.begin(), pieces.end(), lacks))
      return PieceEncoder::encode_all(pieces, ids, ends);
    lanes_.merge(pieces, model_.byte_pairs(), ids, ends);
  }

  void encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<uint32_t>* lengths) override {
    if (model_.lacks(piece)) return encode_replaced(piece, ids, lengths);
    // Shorter pieces that are a token are in words(), where the caller has looked unless it wants lengths.
    const bool may_be_token = lengths || piece.size() > kMaxKeyBytes || !model_.words().is_complete();
    encode_known(piece, may_be_token, ids, lengths);
  }

 private:
  void encode_known(std::string_view piece, bool may_be_token, std::vector<int32_t>& ids,
                    std::vector<uint32_t>* lengths) {
    const size_t first = ids.size();
    if (const int32_t id = may_be_token ? model_.unmade(piece) : -1; id >= 0) {
      ids.push_back(id);
    } else {
      for (size_t from = 0; from < piece.size();) {
        const size_t length = model_.block_length(piece.substr(from));
        symbols_.clear();
        model_.split(piece.substr(from, length), symbols_);
        merger_.merge(symbols_);
        ids.insert(ids.end(), symbols_.begin(), symbols_.end());
        from += length;
      }
    }
    for (size_t i = first; lengths && i < ids.size(); ++i) lengths->push_back(model_.token_length(ids[i]));
  }

  // A piece of which something was left out is no token, whatever is left.
  void encode_replaced(std::string_view piece, std::vector<int32_t>& ids, std::vector<uint32_t>* lengths) {
    std::vector<uint32_t> from, of_replaced;
    bool whole = true;
    const std::string text = model_.replaced(piece, from, whole);
    encode_known(text, whole, ids, lengths ? &of_replaced : nullptr);
    size_t at = 0;
    for (const uint32_t length : of_replaced) {
      const uint32_t begin = at == 0 ? 0 : from[at];  // what was left out belongs to the token before it
      at += length;
      lengths->push_back(from[at] - begin);
    }
  }

  const BpePieces& model_;
  Merger merger_;
  MergeLanes lanes_;
  std::vector<int32_t> symbols_;
};

BpePieces::BpePieces(const BpeModel& model) : merges_(checked_merges(model)), tokens_(model.tokens) {
  std::vector<bool> special(model.tokens.size(), false);
  for (const SpecialToken& token : model.specials) special[static_cast<size_t>(token.id)] = true;
  find_byte_ids(model, special);
  std::vector<MergeCuts::Sides> sides;
  for (const auto& [left, right] : model.merges) sides.emplace_back(tokens_[left], tokens_[right]);
  cuts_ = MergeCuts(sides);
  for (const int32_t left : byte_pairs_.ids) {
    for (const int32_t right : byte_pairs_.ids)
      byte_pairs_.merges.push_back(merges_.find_index(merges_.prefetch(left, right)));
  }
  find_words(model, special);
}

void BpePieces::find_byte_ids(const BpeModel& model, const std::vector<bool>& special) {
  std::array<int32_t, 256>& byte_ids = byte_pairs_.ids;
  byte_ids.fill(-1);
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id].size() != 1) continue;
    int32_t& byte_id = byte_ids[static_cast<unsigned char>(model.tokens[id][0])];
    if (byte_id < 0 && !special[id]) byte_id = static_cast<int32_t>(id);
  }
  std::string left_out;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids[byte] >= 0) continue;
    if (is_printable_ascii(byte)) fail(ErrorCode::kBadFormat, "tokenizer: no token for the byte 0x{:02X}", byte);
    byte_ids[byte] = byte_ids[' '];  // of any token: what lacks() is not looked up
    lacking_.set(static_cast<size_t>(byte));
    if (!is_never_in_utf8(byte)) left_out += fmt::format(" 0x{:02X}", byte);
  }
  if (!left_out.empty())
    log_warn("tokenizer: no tokens for the bytes{}: they are left out of what is encoded", left_out);
  lacks_bytes_ = lacking_.any();
}

std::string BpePieces::replaced(std::string_view piece, std::vector<uint32_t>& from, bool& whole) const {
  std::string text;
  for (size_t i = 0; i < piece.size(); ++i) {
    const auto byte = static_cast<unsigned char>(piece[i]);
    const bool replaces = lacking_[byte] && is_never_in_utf8(byte) && !lacks(kReplacementUtf8);
    if (replaces) text += kReplacementUtf8;
    if (!lacking_[byte]) text += piece[i];
    whole = whole && (replaces || !lacking_[byte]);
    from.resize(text.size(), static_cast<uint32_t>(i));
  }
  from.push_back(static_cast<uint32_t>(piece.size()));
  return text;
}

void BpePieces::find_words(const BpeModel& model, const std::vector<bool>& special) {
  std::unordered_map<std::string_view, int32_t> whole;
  for (size_t i = 0; model.ignore_merges && i < tokens_.size(); ++i) {
    if (!tokens_[i].empty() && !special[i]) whole.emplace(tokens_[i], static_cast<int32_t>(i));
  }
  std::vector<WordTable::Word> words;
  Merger merger(merges_);
  std::vector<int32_t> symbols;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = tokens_[i];
    const auto id = static_cast<int32_t>(i);
    const auto found = whole.find(token);
    const bool is_whole = found != whole.end() && found->second == id;
    if (token.empty() || lacks(token) || (token.size() > kMaxKeyBytes && !is_whole)) continue;
    symbols.clear();
    split(token, symbols);
    merger.merge(symbols);
    const bool is_made = symbols.size() == 1 && symbols[0] == id;
    if (is_whole && !is_made) unmade_.emplace(token, id);
    if (token.size() <= kMaxKeyBytes && (is_made || is_whole))
      words.push_back({PieceKey::of(token, 0, token.size()), id});
  }
  words_ = WordTable(std::move(words));
}

// A token that is taken whole, whatever the merges say, is one only as a piece, never as a part of one.
void BpePieces::cut(std::string_view text, Piece piece, std::vector<Piece>& parts) const {
  const std::string_view all = text.substr(piece.begin, piece.length);
  const size_t before = parts.size();
  if (unmade(all) >= 0 || lacks(all)) return parts.push_back(piece);
  for (size_t from = 0; from < all.size();) {
    const size_t to = cuts_.next_cut(all, from);
    if (unmade(all.substr(from, to - from)) >= 0) {
      parts.resize(before);
      return parts.push_back(piece);
    }
    parts.push_back({piece.begin + from, to - from});
    from = to;
  }
}

std::unique_ptr<PieceEncoder> BpePieces::make_encoder() const { return std::make_unique<BpeEncoder>(*this); }

}  // namespace

std::unique_ptr<PieceModel> make_piece_model(const BpeModel& model) { return std::make_unique<BpePieces>(model); }

}  // namespace loam
