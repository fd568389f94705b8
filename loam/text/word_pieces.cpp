// WordPiece, and whole words, on one piece.
#include <algorithm>

#include "loam/base/error.h"
#include "loam/base/utf8.h"
#include "loam/text/piece_model.h"
#include "loam/text/trie.h"

namespace loam {
namespace {

constexpr size_t kMaxTokenBytes = 1024;

using Entries = std::vector<std::pair<std::string_view, int32_t>>;

void check_words(size_t size, int32_t unknown_id) {
  if (size == 0 || size > size_t{1} << 24) fail(ErrorCode::kBadFormat, "vocabulary of words: {} tokens", size);
  if (unknown_id < 0 || static_cast<size_t>(unknown_id) >= size)
    fail(ErrorCode::kBadFormat, "vocabulary of words: unknown id {} of {} tokens", unknown_id, size);
}

// Control tokens are never made from text.
template <class Model>
Entries text_tokens(const Model& model) {
  const std::vector<std::string>& tokens = model.tokens;
  std::vector<bool> control(tokens.size(), false);
  for (const SpecialToken& special : model.specials) control[static_cast<size_t>(special.id)] = !special.always;
  const size_t own =
      model.own_tokens < 0 ? tokens.size() : std::min(tokens.size(), static_cast<size_t>(model.own_tokens));
  Entries entries;
  for (size_t i = 0; i < own; ++i) {
    if (tokens[i].size() > kMaxTokenBytes)
      fail(ErrorCode::kBadFormat, "vocabulary of words: token {} has {} bytes, more than {}", i, tokens[i].size(),
           kMaxTokenBytes);
    if (!control[i]) entries.emplace_back(tokens[i], static_cast<int32_t>(i));
  }
  return entries;
}

// The tokens that continue a word, without their prefix.
Entries continuing(const Entries& tokens, std::string_view prefix) {
  Entries entries;
  for (const auto& [token, id] : tokens) {
    if (token.starts_with(prefix)) entries.emplace_back(token.substr(prefix.size()), id);
  }
  return entries;
}

bool has_more_characters(std::string_view text, int64_t limit) {
  if (static_cast<int64_t>(text.size()) <= limit) return false;
  int64_t count = 0;
  for (size_t i = 0; i < text.size() && count <= limit; ++count) i += static_cast<size_t>(decode_utf8(text, i).length);
  return count > limit;
}

class WordPieces final : public PieceModel {
 public:
  // Words longer than `max_characters` are unknown.
  WordPieces(Entries first, Entries next, int32_t unknown_id, int64_t max_characters)
      : first_(first), next_(std::move(next)), unknown_id_(unknown_id), max_characters_(max_characters) {
    std::vector<WordTable::Word> words;
    for (const auto& [token, id] : first) {
      const bool short_enough = !token.empty() && token.size() <= kMaxKeyBytes && !is_too_long(token);
      if (short_enough && first_.find(token) == id) words.push_back({PieceKey::of(token, 0, token.size()), id});
    }
    words_ = WordTable(std::move(words));
  }
  std::unique_ptr<PieceEncoder> make_encoder() const override;

  bool is_too_long(std::string_view word) const { return has_more_characters(word, max_characters_); }
  const Trie& first() const { return first_; }  // tokens that begin a word
  const Trie& next() const { return next_; }
  int32_t unknown_id() const { return unknown_id_; }

 private:
  Trie first_, next_;
  int32_t unknown_id_;
  int64_t max_characters_;
};

class WordEncoder final : public PieceEncoder {
 public:
  explicit WordEncoder(const WordPieces& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<uint32_t>* lengths) override {
    const size_t first = ids.size(), first_length = lengths ? lengths->size() : 0;
    size_t from = model_.is_too_long(piece) ? piece.size() : 0;
    const bool too_long = from > 0;
    while (from < piece.size()) {
      const auto [length, id] = (from == 0 ? model_.first() : model_.next()).longest(piece.substr(from));
      if (length == 0) break;
      ids.push_back(id);
      if (lengths) lengths->push_back(static_cast<uint32_t>(length));
      from += length;
    }
    if (from == piece.size() && !too_long) return;
    ids.resize(first);
    ids.push_back(model_.unknown_id());
    if (!lengths) return;
    lengths->resize(first_length);
    lengths->push_back(static_cast<uint32_t>(piece.size()));
  }

 private:
  const WordPieces& model_;
};

std::unique_ptr<PieceEncoder> WordPieces::make_encoder() const { return std::make_unique<WordEncoder>(*this); }

// Whole pieces: what a trie finds to the end, or the unknown token.
class WholeWords final : public PieceModel {
 public:
  WholeWords(const Entries& tokens, int32_t unknown_id) : tokens_(tokens), unknown_id_(unknown_id) {
    std::vector<WordTable::Word> words;
    for (const auto& [token, id] : tokens) {
      if (!token.empty() && token.size() <= kMaxKeyBytes && tokens_.find(token) == id)
        words.push_back({PieceKey::of(token, 0, token.size()), id});
    }
    words_ = WordTable(std::move(words));
  }
  std::unique_ptr<PieceEncoder> make_encoder() const override;

  int32_t id_of(std::string_view piece) const {
    const int32_t id = tokens_.find(piece);
    return id < 0 ? unknown_id_ : id;
  }

 private:
  Trie tokens_;
  int32_t unknown_id_;
};

class WholeWordEncoder final : public PieceEncoder {
 public:
  explicit WholeWordEncoder(const WholeWords& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<uint32_t>* lengths) override {
    ids.push_back(model_.id_of(piece));
    if (lengths) lengths->push_back(static_cast<uint32_t>(piece.size()));
  }

 private:
  const WholeWords& model_;
};

std::unique_ptr<PieceEncoder> WholeWords::make_encoder() const { return std::make_unique<WholeWordEncoder>(*this); }

}  // namespace

std::unique_ptr<PieceModel> make_piece_model(const WordPieceModel& model) {
  check_words(model.tokens.size(), model.unknown_id);
  if (model.max_characters < 1)
    fail(ErrorCode::kBadFormat, "vocabulary of words: at most {} characters in a word", model.max_characters);
  const Entries tokens = text_tokens(model);
  return std::make_unique<WordPieces>(tokens, continuing(tokens, model.prefix), model.unknown_id, model.max_characters);
}

std::unique_ptr<PieceModel> make_piece_model(const WordModel& model) {
  check_words(model.tokens.size(), model.unknown_id);
  return std::make_unique<WholeWords>(text_tokens(model), model.unknown_id);
}

}  // namespace loam
