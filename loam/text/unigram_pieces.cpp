// The Unigram language model on one piece: Viterbi's algorithm over the tokens that begin at each character.
#include <algorithm>
#include <cmath>
#include <limits>

#include "loam/base/error.h"
#include "loam/base/utf8.h"
#include "loam/text/piece_model.h"
#include "loam/text/spm_vocab.h"
#include "loam/text/trie.h"

namespace loam {
namespace {

constexpr size_t kMaxTokenBytes = 8192;
constexpr double kUnknownPenalty = 10;
constexpr double kRestart = 100000;  // SentencePiece begins to count anew where a sum of floats gets that large

void check_unigram(const UnigramModel& model) {
  const auto size = static_cast<int64_t>(model.tokens.size());
  if (size == 0 || size > int64_t{1} << 24) fail(ErrorCode::kBadFormat, "Unigram vocabulary: {} tokens", size);
  if (model.scores.size() > model.tokens.size())
    fail(ErrorCode::kBadFormat, "Unigram vocabulary: {} tokens but {} scores", size, model.scores.size());
  if (model.unknown_id < -1 || model.unknown_id >= size)
    fail(ErrorCode::kBadFormat, "Unigram vocabulary: unknown id {} of {} tokens", model.unknown_id, size);
  for (size_t i = 0; i < model.scores.size(); ++i) {
    const double score = model.scores[i];
    if (std::isnan(score) || score == std::numeric_limits<double>::infinity())
      fail(ErrorCode::kBadFormat, "Unigram vocabulary: the score of token {} is {}", i, score);
    if (model.tokens[i].size() > kMaxTokenBytes)
      fail(ErrorCode::kBadFormat, "Unigram vocabulary: token {} has more than {} bytes", i, kMaxTokenBytes);
  }
  check_byte_tokens(model.tokens, model.first_byte_id);
}

class UnigramPieces final : public PieceModel {
 public:
  explicit UnigramPieces(const UnigramModel& model);

  std::unique_ptr<PieceEncoder> make_encoder() const override;

  const Trie& trie() const { return trie_; }
  double score(int32_t id) const { return scores_[static_cast<size_t>(id)]; }
  double unknown_score() const { return unknown_score_; }
  int32_t unknown_id() const { return unknown_id_; }
  int32_t first_byte_id() const { return first_byte_id_; }
  const NeighbourSet& joined() const { return joined_; }
  bool float_sums() const { return float_sums_; }

 private:
  std::vector<bool> find_text(const UnigramModel& model) const;
  void find_words(const UnigramModel& model, const std::vector<bool>& text);

  Trie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  int32_t unknown_id_, first_byte_id_;
  bool float_sums_;
  NeighbourSet joined_;  // no token reaches across two bytes that are not in it
};

// Sums are kept in the type Sum. A piece is done in blocks, between which no token reaches across; the sum goes on, so
// that rounding is that of the whole.
template <class Sum>
class UnigramEncoder final : public PieceEncoder {
 public:
  explicit UnigramEncoder(const UnigramPieces& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<uint32_t>* lengths) override {
    const size_t first = ids.size();
    Sum sum = 0;
    for (size_t from = 0; from < piece.size();) {
      const size_t length = block_length(piece.substr(from));
      sum = find_best(piece.substr(from, length), sum);
      write(piece.substr(from, length), first, ids, lengths);
      from += length;
    }
  }

 private:
  static constexpr size_t kBlockBytes = 4096;
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  struct Place {  // what ends here at best
    Sum sum = 0;  // of the scores from the beginning
    uint32_t from = kNone;
    int32_t id = -1;  // kUnknown: a character that no token covers
  };
  static constexpr int32_t kUnknown = -1;

  size_t block_length(std::string_view text) const {
    size_t length = std::min(kBlockBytes, text.size());
    while (length < text.size() && (model_.joined().contains(text[length - 1], text[length]) ||
                                    (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80))
      ++length;
    return length;
  }

  void offer(size_t end, Sum sum, size_t from, int32_t id) {
    Place& place = places_[end];
    if (place.from == kNone || sum > place.sum) place = {sum, static_cast<uint32_t>(from), id};
  }

  Sum find_best(std::string_view text, Sum sum) {
    places_.assign(text.size() + 1, Place());
    places_[0].sum = sum;
    size_t reached = 0;
    for (size_t begin = 0; begin < text.size();) {
      if (std::is_same_v<Sum, float> && std::abs(places_[begin].sum) > kRestart) restart(begin, reached);
      const size_t character = static_cast<size_t>(decode_utf8(text, begin).length);
      const Sum till_here = places_[begin].sum;
      bool covered = false;
      uint32_t node = Trie::kRoot;
      for (size_t end = begin; end < text.size() && model_.trie().step(node, text[end]);) {
        ++end;
        const int32_t id = model_.trie().value(node);
        if (id < 0) continue;
        offer(end, static_cast<Sum>(model_.score(id)) + till_here, begin, id);
        covered = covered || end == begin + character;
        reached = std::max(reached, end);
      }
      if (!covered) {
        offer(begin + character, static_cast<Sum>(model_.unknown_score()) + till_here, begin, kUnknown);
        reached = std::max(reached, begin + character);
      }
      begin += character;
    }
    return places_[text.size()].sum;
  }

  void restart(size_t begin, size_t reached) {
    const Sum offset = places_[begin].sum;
    for (size_t i = begin; i <= reached; ++i) {
      if (i == begin || places_[i].from != kNone) places_[i].sum -= offset;
    }
  }

  void write(std::string_view text, size_t first, std::vector<int32_t>& ids, std::vector<uint32_t>* lengths) {
    path_.clear();
    for (size_t end = text.size(); end > 0; end = places_[end].from) path_.push_back(static_cast<uint32_t>(end));
    for (size_t i = path_.size(); i-- > 0;) {
      const Place& place = places_[path_[i]];
      const uint32_t length = path_[i] - place.from;
      if (place.id != kUnknown) {
        ids.push_back(place.id);
        if (lengths) lengths->push_back(length);
      } else if (model_.first_byte_id() >= 0) {
        for (const char byte : text.substr(place.from, length)) {
          ids.push_back(model_.first_byte_id() + static_cast<unsigned char>(byte));
          if (lengths) lengths->push_back(1);
        }
      } else if (ids.size() > first && ids.back() == model_.unknown_id()) {
        if (lengths) lengths->back() += length;
      } else {
        if (model_.unknown_id() < 0)
          fail(ErrorCode::kInvalidArgument, "tokenizer: no token for \"{}\", and none for what is unknown",
               printable(text.substr(place.from, length)));
        ids.push_back(model_.unknown_id());
        if (lengths) lengths->push_back(length);
      }
    }
  }

  const UnigramPieces& model_;
  std::vector<Place> places_;
  std::vector<uint32_t> path_;
};

// Sums of doubles that are floats are exact, in whatever order they are made: only then can text be cut anywhere
// without a change of what is equal.
bool sums_are_exact(const UnigramModel& model) {
  return !model.float_sums && std::all_of(model.scores.begin(), model.scores.end(), [](double score) {
    return static_cast<double>(static_cast<float>(score)) == score;
  });
}

UnigramPieces::UnigramPieces(const UnigramModel& model)
    : scores_(model.scores),
      unknown_id_(model.unknown_id),
      first_byte_id_(model.first_byte_id),
      float_sums_(model.float_sums) {
  check_unigram(model);
  const std::vector<bool> text = find_text(model);
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < scores_.size(); ++i) {
    if (std::isfinite(scores_[i])) least = std::min(least, scores_[i]);
    if (!text[i]) continue;
    entries.emplace_back(model.tokens[i], static_cast<int32_t>(i));
    joined_.add_token(model.tokens[i]);
  }
  unknown_score_ = std::isfinite(least) ? least - kUnknownPenalty : -kUnknownPenalty;
  trie_ = Trie(std::move(entries));
  if (first_byte_id_ < 0) fused_id_ = unknown_id_;
  if (sums_are_exact(model)) neighbours_ = std::make_unique<NeighbourSet>(joined_);
  find_words(model, text);
}

// What may be made from text: neither control tokens nor bytes, the unknown token or tokens at minus infinity.
std::vector<bool> UnigramPieces::find_text(const UnigramModel& model) const {
  std::vector<bool> text(model.tokens.size(), true);
  for (const SpecialToken& special : model.specials) {
    if (!special.always) text[static_cast<size_t>(special.id)] = false;
  }
  for (int byte = 0; byte < 256 && first_byte_id_ >= 0; ++byte)
    text[static_cast<size_t>(first_byte_id_ + byte)] = false;
  if (unknown_id_ >= 0) text[static_cast<size_t>(unknown_id_)] = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i >= scores_.size() || model.tokens[i].empty() || !std::isfinite(scores_[i])) text[i] = false;
  }
  return text;
}

void UnigramPieces::find_words(const UnigramModel& model, const std::vector<bool>& text) {
  std::vector<WordTable::Word> words;
  const std::unique_ptr<PieceEncoder> encoder = make_encoder();
  std::vector<int32_t> ids;
  for (size_t i = 0; i < model.tokens.size(); ++i) {
    const std::string& token = model.tokens[i];
    if (!text[i] || token.size() > kMaxKeyBytes) continue;
    ids.clear();
    encoder->encode(token, ids, nullptr);
    if (ids.size() == 1 && ids[0] == static_cast<int32_t>(i))
      words.push_back({PieceKey::of(token, 0, token.size()), ids[0]});
  }
  words_ = WordTable(std::move(words));
}

std::unique_ptr<PieceEncoder> UnigramPieces::make_encoder() const {
  if (float_sums_) return std::make_unique<UnigramEncoder<float>>(*this);
  return std::make_unique<UnigramEncoder<double>>(*this);
}

}  // namespace

std::unique_ptr<PieceModel> make_piece_model(const UnigramModel& model) {
  return std::make_unique<UnigramPieces>(model);
}

}  // namespace loam
