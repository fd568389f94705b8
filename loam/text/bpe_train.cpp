#include "loam/text/bpe_train.h"

#include <algorithm>
#include <array>
#include <span>

#include "loam/base/error.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/parallel_for.h"
#include "loam/base/progress.h"
#include "loam/text/count_store.h"
#include "loam/text/merge_learner.h"
#include "loam/text/piece_choice.h"
#include "loam/text/piece_counter.h"
#include "loam/text/special_matcher.h"

namespace loam {
namespace {

constexpr size_t kChunkBytes = 1 << 18;    // work for one thread at a time
constexpr size_t kChunksAtOnce = 64;       // after so many, memory is looked at
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
  LOAM_CHECK(options.max_token_length >= 0, "tokenizer training: max_token_length {} is negative",
             options.max_token_length);
  LOAM_CHECK(options.memory >= 1, "tokenizer training: {} bytes of memory", options.memory);
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
      : options(std::move(given)), matcher(make_matcher(options.special_tokens)), counters(options.threads) {
    if (!options.directory.empty()) store.emplace(options.directory);
  }

  void add(const std::vector<std::string_view>& texts, int64_t weight);
  void count(std::span<const std::string_view> chunks, int64_t weight);
  int64_t memory_used() const;
  void spill_if_full();
  bool on_disk() const { return store && !store->empty(); }
  void gather();
  void for_each(const PieceVisitor& visit) const;
  Json counted() const;
  void check_counted(const Json& before) const;
  PieceChoice choose();

  BpeTrainOptions options;
  SpecialMatcher matcher;
  std::vector<PieceCounter> counters;  // one a thread; only their sum, with what is in the store, has a meaning
  std::optional<CountStore> store;
  int64_t total_bytes = 0;
  std::optional<int64_t> distinct;  // once all is counted
  DroppedPieces dropped;
};

void BpeTrainer::State::add(const std::vector<std::string_view>& texts, int64_t weight) {
  LOAM_CHECK(weight >= 0, "tokenizer training: document weight {} is negative", weight);
  std::vector<std::string_view> chunks;
  int64_t bytes = 0;
  for (const std::string_view text : texts) {
    bytes += static_cast<int64_t>(text.size());
    for (size_t from = 0; from < text.size();) {
      const SpecialMatcher::Found found = matcher.find(text, from, from);
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
  distinct.reset();
  if (weight == 0) return;
  const size_t at_once = std::max(kChunksAtOnce, 4 * static_cast<size_t>(options.threads));
  for (size_t from = 0; from < chunks.size(); from += at_once) {
    count(std::span(chunks).subspan(from, std::min(at_once, chunks.size() - from)), weight);
    spill_if_full();
  }
}

void BpeTrainer::State::count(std::span<const std::string_view> chunks, int64_t weight) {
  parallel_tasks(options.threads, static_cast<int64_t>(chunks.size()), [&](int64_t i, int thread) {
    check_interrupt();
    PieceCursor cursor(options.pretokenizer, chunks[i]);
    std::array<Piece, 64> pieces;
    while (const size_t count = cursor.next(pieces)) {
      counters[thread].add_pieces(chunks[i], std::span(pieces).first(count), weight);
    }
  });
}

int64_t BpeTrainer::State::memory_used() const {
  int64_t used = 0;
  for (const PieceCounter& counter : counters) used += counter.memory();
  return used;
}

void BpeTrainer::State::spill_if_full() {
  const int64_t used = memory_used();
  if (used <= options.memory / 4) return;
  if (!store) {
    fail(ErrorCode::kOutOfMemory,
         "tokenizer training: counts take {}, more than a quarter of {}, and no directory is given to put them on disk",
         format_bytes(static_cast<double>(used)), format_bytes(static_cast<double>(options.memory)));
  }
  store->add_run(counters);
}

// Brings all counts together: on disk if some are there, else in one table.
void BpeTrainer::State::gather() {
  if (on_disk()) {
    store->add_run(counters);
    return;
  }
  for (size_t i = 1; i < counters.size(); ++i) {
    counters[0].add_all(counters[i]);
    counters[i] = PieceCounter();
  }
}

// REQUIRES: gather().
void BpeTrainer::State::for_each(const PieceVisitor& visit) const {
  if (!on_disk()) {
    counters[0].for_each(visit);
    return;
  }
  constexpr int64_t kStep = 65536;
  Progress progress("reading counts", distinct.value_or(0), "pieces");
  int64_t pieces = 0;
  store->for_each([&](std::string_view piece, int64_t count) {
    if (++pieces % kStep == 0) progress.advance(kStep);
    visit(piece, count);
  });
}

// All that decides counts.
Json BpeTrainer::State::counted() const {
  Json all = options.source.is_object() ? options.source : Json::object();
  all["pattern"] = options.pretokenizer.description();
  Json::Array specials(options.special_tokens.begin(), options.special_tokens.end());
  std::sort(specials.begin(), specials.end(),
            [](const Json& a, const Json& b) { return a.as_string() < b.as_string(); });
  all["special_tokens"] = std::move(specials);
  return all;
}

// What fits into memory; warns of what does not.
PieceChoice BpeTrainer::State::choose() {
  const int64_t most = std::min(options.memory * 3 / 4 / MergeLearner::kBytesAPosition, MergeLearner::kMaxPositions);
  PieceChoice choice([this](const PieceVisitor& visit) { for_each(visit); }, most);
  const PieceAmount &all = choice.all(), &chosen = choice.chosen();
  distinct = all.pieces;
  if (all.longest > kHugePieceBytes) {
    log_warn(
        "tokenizer training: the longest piece has {} bytes: text without spaces, or no text; memory grows with the {} "
        "of distinct pieces",
        all.longest, format_bytes(static_cast<double>(all.positions - all.pieces)));
  }
  dropped = {all.pieces - chosen.pieces, all.occurrences - chosen.occurrences};
  if (dropped.pieces == 0) return choice;
  const double needed = static_cast<double>(all.positions) * MergeLearner::kBytesAPosition * 4 / 3;
  LOAM_CHECK(chosen.pieces > 0,
             "tokenizer training: not one of {} distinct pieces, the longest of {} bytes, fits into {} of memory",
             all.pieces, all.longest, format_bytes(static_cast<double>(options.memory)));
  log_warn(
      "tokenizer training: {} of {} distinct pieces do not fit into {} of memory; the rarest are left out, {:.2g}% of "
      "the text's pieces; all would need {}",
      dropped.pieces, all.pieces, format_bytes(static_cast<double>(options.memory)),
      100 * static_cast<double>(dropped.occurrences) / static_cast<double>(all.occurrences), format_bytes(needed));
  return choice;
}

BpeTrainer::BpeTrainer(BpeTrainOptions options) {
  check_options(options);
  state_ = std::make_unique<State>(std::move(options));
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add_document(std::string_view text, int64_t weight) { state_->add({text}, weight); }

void BpeTrainer::add_documents(const std::vector<std::string_view>& texts) { state_->add(texts, 1); }

void BpeTrainer::checkpoint(const Json& position) {
  LOAM_CHECK(state_->store, "tokenizer training: a checkpoint needs a directory");
  Json state;
  state["counted"] = state_->counted();
  state["bytes"] = state_->total_bytes;
  state["position"] = position;
  state_->store->add_run(state_->counters);
  state_->store->save(state);
}

// Error{kInvalidArgument} for a setting that was another one when the pieces were counted.
void BpeTrainer::State::check_counted(const Json& before) const {
  const Json wanted = counted();
  for (const auto& [key, mine] : wanted.as_object()) {
    const Json* theirs = before.find(key);
    if (theirs && *theirs == mine) continue;
    constexpr size_t kShown = 200;
    const std::string now = mine.dump(), then = theirs ? theirs->dump() : "null";
    LOAM_CHECK(now.size() > kShown || then.size() > kShown, "counted with {} {}, not {}", key, then, now);
    LOAM_CHECK(false, "counted with other {}", key);
  }
}

std::optional<Json> BpeTrainer::resume() {
  if (!has_checkpoint()) return std::nullopt;
  const Json state = state_->store->load();
  try {
    state_->check_counted(state.at("counted"));
    state_->total_bytes = state.at("bytes").as_int();
    if (state_->total_bytes < 0) fail(ErrorCode::kBadFormat, "{} bytes were counted", state_->total_bytes);
    return state.at("position");
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", state_->options.directory.string(), error.what());
  }
}

bool BpeTrainer::has_checkpoint() const { return state_->store && state_->store->has_state(); }
bool BpeTrainer::has_spilled() const { return state_->store && state_->store->has_unsaved_runs(); }

void BpeTrainer::discard() {
  if (state_->store) state_->store->remove();
}

int64_t BpeTrainer::distinct_pieces() const {
  if (!state_->distinct) {
    state_->gather();
    int64_t pieces = 0;
    state_->for_each([&](std::string_view, int64_t) { ++pieces; });
    state_->distinct = pieces;
  }
  return *state_->distinct;
}

std::vector<PieceCount> BpeTrainer::most_frequent(int64_t count) const {
  const size_t wanted = static_cast<size_t>(std::max(count, int64_t{0}));
  const auto before = [](const PieceCount& a, const PieceCount& b) {
    return a.count != b.count ? a.count > b.count : a.piece < b.piece;
  };
  std::vector<PieceCount> best;
  state_->gather();
  state_->for_each([&](std::string_view piece, int64_t times) {
    if (times < state_->options.min_frequency) return;
    best.push_back({std::string(piece), times});
    if (best.size() < 2 * wanted + 1024) return;
    std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(wanted), best.end(), before);
    best.resize(wanted);
  });
  std::sort(best.begin(), best.end(), before);
  best.resize(std::min(best.size(), wanted));
  return best;
}

int64_t BpeTrainer::total_bytes() const { return state_->total_bytes; }
int64_t BpeTrainer::memory_used() const { return state_->memory_used(); }

const DroppedPieces& BpeTrainer::dropped() const { return state_->dropped; }

std::vector<Merge> BpeTrainer::train() {
  const BpeTrainOptions& options = state_->options;
  state_->gather();
  const PieceChoice choice = state_->choose();
  const int64_t wanted = options.vocab_size - 256 - static_cast<int64_t>(options.special_tokens.size());
  MergeLearner learner({options.min_frequency, options.max_token_length});
  learner.reserve(choice.chosen().pieces, choice.chosen().positions);
  state_->for_each([&](std::string_view piece, int64_t count) {
    if (choice.takes(piece, count)) learner.add(piece, count);
  });
  for (PieceCounter& counter : state_->counters) counter = PieceCounter();
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
    log_warn("tokenizer training: only {} of {} merges: no further pair occurs {} times{}", merges.size(), wanted,
             options.min_frequency,
             options.max_token_length > 0 ? fmt::format(" in a token of {} bytes", options.max_token_length) : "");
  }
  return merges;
}

}  // namespace loam
