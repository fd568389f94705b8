// Shared by the tests of text: corpora, slow references that can be checked by eye, and the fixtures.
#pragma once

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/base/parallel_for.h"
#include "loam/base/philox.h"
#include "loam/text/bpe_train.h"
#include "loam/text/tokenizer.h"
#include "tests/harness/shared.h"

namespace loam::testing {

// Seconds of processor time of this thread: other work on the machine does not count.
inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Tries seeds 0, 1, ..., `usual` of them; or as many as the environment variable says, on all cores. Stops at a
// failure.
template <class Try>
void for_each_seed(const char* variable, uint64_t usual, Try&& try_seed) {
  constexpr uint64_t kAtOnce = 1000;
  const char* asked = std::getenv(variable);
  const uint64_t seeds = asked ? std::stoull(asked) : usual;
  const auto blocks = static_cast<int64_t>((seeds + kAtOnce - 1) / kAtOnce);
  parallel_tasks(asked ? available_cores() : 1, blocks, [&](int64_t block, int) {
    const uint64_t first = static_cast<uint64_t>(block) * kAtOnce;
    for (uint64_t seed = first; seed < std::min(first + kAtOnce, seeds) && !::testing::Test::HasFailure(); ++seed)
      try_seed(seed);
  });
}

inline Json fixture(const std::string& name) {
  const Path path = testing::source_path("tests/fixtures") / name;
  return Json::parse(read_file(path), name);
}

inline std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

// By StreamEncoder::encode_front(), which is given `block` more bytes each time.
inline std::vector<int32_t> encode_in_blocks(const Tokenizer& tokenizer, const SpecialPolicy& policy,
                                             std::string_view text, size_t block, int threads) {
  StreamEncoder encoder(tokenizer, policy, 1, threads);
  std::vector<int32_t> ids;
  const IdSink sink = [&](std::span<const int32_t> some) { ids.insert(ids.end(), some.begin(), some.end()); };
  for (size_t done = 0, end = 0; end < text.size();) {
    end = std::min(text.size(), end + block);
    done += encoder.encode_front(text.substr(done, end - done), end == text.size(), sink, [] {});
  }
  return ids;
}

inline std::vector<std::string> split_pieces(std::string_view text,
                                             const Pretokenizer& pretokenizer = Pretokenizer::gpt2()) {
  std::vector<std::string> pieces;
  PieceCursor cursor(pretokenizer, text);
  std::array<Piece, 3> some;
  while (const size_t count = cursor.next(some)) {
    for (size_t i = 0; i < count; ++i) pieces.emplace_back(text.substr(some[i].begin, some[i].length));
  }
  return pieces;
}

// Text of `length` parts, each drawn from `parts`.
inline std::string random_text(const std::vector<std::string>& parts, int length, uint64_t seed) {
  const PhiloxStream random{seed, 0};
  std::string text;
  for (int i = 0; i < length; ++i) text += parts[random.below(i, parts.size())];
  return text;
}

inline std::string random_bytes(int length, uint64_t seed) {
  const PhiloxStream random{seed, 1};
  std::string text;
  for (int i = 0; i < length; ++i) text += static_cast<char>(random.below(i, 256));
  return text;
}

// Parts that make hard text: white space of all kinds, contractions, letters and numbers of several scripts, broken
// UTF-8, special tokens.
inline const std::vector<std::string>& hard_parts() {
  static const std::vector<std::string> parts = {
      " ",      "  ",       "\n",           "\r\n",   "\t",     "a",       "the",      "The",
      "'s",     "'",        "'r",           "'re",    "'ll",    "v",       "1",        "23",
      "\u00e9", "\u4f60",   "\u3000",       "\u00a0", "\u0085", "!",       "--",       "\U0001f60a",
      "\xff",   "\xe4\xbd", "\xed\xa0\x80", "\xc2",   "<|",     "<|end|>", "<|end|>x",
  };
  return parts;
}

// Joins the pair wherever it stands, from left to right.
template <class Symbol>
std::vector<Symbol> join_pair(const std::vector<Symbol>& symbols, const Symbol& left, const Symbol& right,
                              const Symbol& made) {
  std::vector<Symbol> out;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (i + 1 < symbols.size() && symbols[i] == left && symbols[i + 1] == right) {
      out.push_back(made);
      ++i;
    } else {
      out.push_back(symbols[i]);
    }
  }
  return out;
}

using ByteMerge = std::pair<std::string, std::string>;

// BPE training as its definition says: count all pairs anew, take the best, join it, again.
inline std::vector<ByteMerge> slow_train(const std::map<std::string, int64_t>& pieces, size_t merges,
                                         int64_t min_frequency = 2) {
  std::vector<std::pair<std::vector<std::string>, int64_t>> words;
  for (const auto& [piece, count] : pieces) {
    std::vector<std::string> symbols;
    for (const char c : piece) symbols.emplace_back(1, c);
    words.emplace_back(symbols, count);
  }
  std::vector<ByteMerge> result;
  while (result.size() < merges) {
    std::map<ByteMerge, int64_t> counts;
    for (const auto& [symbols, count] : words) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) counts[{symbols[i], symbols[i + 1]}] += count;
    }
    // std::string compares unsigned bytes; the map is in order, so the last of equals is the greatest.
    const auto best = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second, a.first) < std::pair(b.second, b.first);
    });
    if (best == counts.end() || best->second < min_frequency) break;
    const auto [left, right] = best->first;
    for (auto& [symbols, count] : words) symbols = join_pair(symbols, left, right, left + right);
    result.push_back({left, right});
  }
  return result;
}

inline std::map<std::string, int64_t> count_pieces(const std::vector<std::string>& texts) {
  std::map<std::string, int64_t> pieces;
  for (const std::string& text : texts) {
    for (const std::string& piece : split_pieces(text)) ++pieces[piece];
  }
  return pieces;
}

// A vocabulary with a token for each byte (ids 0 to 255) and merges given as text.
inline BpeModel model_of(const std::vector<ByteMerge>& merges) {
  BpeModel model = make_bpe_model({}, {}, Pretokenizer::gpt2());
  const auto id_of = [&](const std::string& token) {
    return static_cast<int32_t>(std::find(model.tokens.begin(), model.tokens.end(), token) - model.tokens.begin());
  };
  for (const auto& [left, right] : merges) {
    if (id_of(left + right) == static_cast<int32_t>(model.tokens.size())) model.tokens.push_back(left + right);
    model.merges.emplace_back(id_of(left), id_of(right));
    model.merge_ids.push_back(id_of(left + right));
  }
  return model;
}

inline std::vector<ByteMerge> as_bytes(const std::vector<Merge>& merges) {
  const BpeModel model = make_bpe_model(merges, {}, Pretokenizer::gpt2());
  std::vector<ByteMerge> bytes;
  for (const auto& [left, right] : merges) bytes.emplace_back(model.tokens[left], model.tokens[right]);
  return bytes;
}

inline std::vector<Merge> train_on(const std::vector<std::string>& texts, int64_t merges, int threads = 1) {
  BpeTrainOptions options;
  options.vocab_size = 256 + merges;
  options.threads = threads;
  BpeTrainer trainer(options);
  trainer.add_documents({texts.begin(), texts.end()});
  return trainer.train();
}

// Encoding of one piece as its definition says: of all adjacent pairs the one of lowest rank, the leftmost of equals,
// again and again.
inline std::vector<int32_t> slow_merge(const BpeModel& model, std::vector<int32_t> symbols) {
  std::map<Merge, size_t> ranks;
  for (size_t i = 0; i < model.merges.size(); ++i) ranks.emplace(model.merges[i], i);
  const auto rank = [&](size_t i) {
    const auto found = ranks.find({symbols[i], symbols[i + 1]});
    return found == ranks.end() ? model.merges.size() : found->second;
  };
  std::vector<size_t> pairs;  // the ranks of the adjacent pairs
  for (size_t i = 0; i + 1 < symbols.size(); ++i) pairs.push_back(rank(i));
  while (true) {
    const auto best = std::min_element(pairs.begin(), pairs.end());
    if (best == pairs.end() || *best == model.merges.size()) return symbols;
    const auto where = best - pairs.begin();
    symbols[where] = model.merge_ids[*best];
    symbols.erase(symbols.begin() + where + 1);
    pairs.erase(best);
    for (size_t i = std::max<size_t>(where, 1) - 1; i < std::min<size_t>(where + 1, pairs.size()); ++i)
      pairs[i] = rank(i);
  }
}

// REQUIRES: a model whose byte tokens are 0 to 255.
inline std::vector<int32_t> slow_encode(const BpeModel& model, std::string_view text) {
  std::vector<int32_t> ids;
  for (const std::string& piece : split_pieces(text)) {
    std::vector<int32_t> symbols;
    for (const char c : piece) symbols.push_back(static_cast<unsigned char>(c));
    for (const int32_t id : slow_merge(model, symbols)) ids.push_back(id);
  }
  return ids;
}

}  // namespace loam::testing
