#include "loam/text/bpe_train.h"

#include <algorithm>
#include <array>
#include <span>

#include "loam/base/error.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/parallel_for.h"
#include "loam/base/progress.h"
#include "loam/text/merge_learner.h"
#include "loam/text/piece_counter.h"
#include "loam/text/special_matcher.h"

namespace loam {
namespace {

constexpr size_t kChunkBytes = 1 << 18;    // work for one thread at a time
constexpr int64_t kHugePieceBytes = 4096;  // longer than any word: the text has no spaces, or is not text

void check_options(const BpeTrainOptions& options) {
  std::vector<std::string> specials = options.special_tokens;
  std::sort(specials.begin(), specials.end());
  const auto twice = std::adjacent_find(specials.begin(), specials.end());
  LOAM_CHECK(twice == specials.end(), "tokenizer training: special token \"{}\" is given twice", *twice);
  LOAM_CHECK(specials.empty() || !specials[0].empty(), "tokenizer training: a special token is empty");
  const int64_t least = 256 + static_cast<int64_t>(specials.size());
  LOAM_CHECK(options.vocab_size >= least,
             "tokenizer training: vocab_size {} is less than the 256 bytes and {} special tokens", options.vocab_size,
             specials.size());
  LOAM_CHECK(options.vocab_size <= int64_t{1} << 24, "tokenizer training: vocab_size {} is more than 2^24",
             options.vocab_size);
  LOAM_CHECK(options.threads >= 1, "tokenizer training: {} threads", options.threads);
}

SpecialMatcher make_matcher(const std::vector<std::string>& specials) {
  std::vector<SpecialToken> tokens;
  for (const std::string& text : specials) tokens.push_back({text, 0});
  return SpecialMatcher(std::move(tokens));
}

// Cuts text without special tokens into parts of about kChunkBytes that have the same pieces one by one as together.
void append_chunks(const Pretokenizer& pretokenizer, std::string_view text, std::vector<std::string_view>& chunks) {
  while (text.size() > kChunkBytes) {
    size_t cut = kChunkBytes;
    while (cut < text.size() && !pretokenizer.is_independent_cut(text, cut)) ++cut;
    chunks.push_back(text.substr(0, cut));
    text.remove_prefix(cut);
  }
  if (!text.empty()) chunks.push_back(text);
}

}  // namespace

struct BpeTrainer::State {
  explicit State(BpeTrainOptions given)
      : options(std::move(given)), matcher(make_matcher(options.special_tokens)), counters(options.threads) {}

  void add(const std::vector<std::string_view>& texts, int64_t weight);
  PieceCounter& merged();

  BpeTrainOptions options;
  SpecialMatcher matcher;
  std::vector<PieceCounter> counters;  // one a thread; only their sum has a meaning
  int64_t total_bytes = 0;
};

void BpeTrainer::State::add(const std::vector<std::string_view>& texts, int64_t weight) {
  LOAM_CHECK(weight >= 0, "tokenizer training: document weight {} is negative", weight);
  std::vector<std::string_view> chunks;
  int64_t bytes = 0;
  for (const std::string_view text : texts) {
    bytes += static_cast<int64_t>(text.size());
    for (size_t from = 0; from < text.size();) {
      const SpecialMatcher::Found found = matcher.find(text, from);
      append_chunks(options.pretokenizer, text.substr(from, found.position - from), chunks);
      from = found.position + found.length;
    }
  }
  // The weighted length bounds every count.
  int64_t weighted = 0, total = 0;
  LOAM_CHECK(
      !__builtin_mul_overflow(bytes, weight, &weighted) && !__builtin_add_overflow(total_bytes, weighted, &total),
      "tokenizer training: counts would pass 2^63 at document weight {}", weight);
  total_bytes = total;
  if (weight == 0) return;
  parallel_tasks(options.threads, static_cast<int64_t>(chunks.size()), [&](int64_t i, int thread) {
    check_interrupt();
    const std::string_view chunk = chunks[i];
    PieceCursor cursor(options.pretokenizer, chunk);
    std::array<Piece, 64> pieces;
    while (const size_t count = cursor.next(pieces)) {
      for (const Piece& piece : std::span(pieces).first(count)) {
        counters[thread].add(chunk.substr(piece.begin, piece.length), weight);
      }
    }
  });
}

PieceCounter& BpeTrainer::State::merged() {
  for (size_t i = 1; i < counters.size(); ++i) {
    counters[0].add_all(counters[i]);
    counters[i] = PieceCounter();
  }
  return counters[0];
}

BpeTrainer::BpeTrainer(BpeTrainOptions options) {
  check_options(options);
  state_ = std::make_unique<State>(std::move(options));
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add_document(std::string_view text, int64_t weight) { state_->add({text}, weight); }

void BpeTrainer::add_documents(const std::vector<std::string_view>& texts) { state_->add(texts, 1); }

int64_t BpeTrainer::distinct_pieces() const { return state_->merged().size(); }

std::vector<PieceCount> BpeTrainer::most_frequent(int64_t count) const {
  const PieceCounter& pieces = state_->merged();
  std::vector<PieceCount> all;
  for (const PieceCounter::Entry& entry : pieces.entries()) {
    if (entry.count >= state_->options.min_frequency) all.push_back({std::string(pieces.text(entry)), entry.count});
  }
  std::sort(all.begin(), all.end(), [](const PieceCount& a, const PieceCount& b) {
    return a.count != b.count ? a.count > b.count : a.piece < b.piece;
  });
  all.resize(std::min(all.size(), static_cast<size_t>(std::max(count, int64_t{0}))));
  return all;
}

int64_t BpeTrainer::total_bytes() const { return state_->total_bytes; }

std::vector<Merge> BpeTrainer::train() {
  const BpeTrainOptions& options = state_->options;
  const PieceCounter& pieces = state_->merged();
  int64_t longest = 0;
  for (const PieceCounter::Entry& entry : pieces.entries()) longest = std::max(longest, entry.length);
  if (longest > kHugePieceBytes) {
    log_warn(
        "tokenizer training: the longest piece has {} bytes: text without spaces, or no text; memory grows with the {} "
        "of distinct pieces",
        longest, format_bytes(static_cast<double>(pieces.total_bytes())));
  }
  const int64_t wanted = options.vocab_size - 256 - static_cast<int64_t>(options.special_tokens.size());
  MergeLearner learner(pieces, options.min_frequency);
  std::vector<Merge> merges;
  Progress progress("learning merges", wanted, "merges");
  while (static_cast<int64_t>(merges.size()) < wanted) {
    check_interrupt();
    const std::optional<Merge> merge = learner.next();
    if (!merge) break;
    merges.push_back(*merge);
    progress.advance(1);
  }
  progress.finish();
  if (static_cast<int64_t>(merges.size()) < wanted) {
    log_warn("tokenizer training: only {} of {} merges: no further pair occurs {} times", merges.size(), wanted,
             options.min_frequency);
  }
  return merges;
}

}  // namespace loam
