// Training batches from a token set. The order is a pure function of (seed, epoch, global sample index), so a loader
// has no state but the number of samples already taken: resuming is arithmetic, and ranks and workers slice the same
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "loam/data/best_fit.h"
#include "loam/data/token_shard.h"

namespace loam {

// One row of a batch, T each: the arrays of TokenBatch.
struct TokenRow {
  std::span<int32_t> tokens, targets, first_key, positions;
};

// Rows of a batch. Legend: B rows, T tokens a row. Row-major [B,T].
struct TokenBatch {
  int64_t rows = 0, length = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;  // the next token; -1 where there is none to learn (across a document's end when
                                 // documents are masked, unless the next token is the one that ends a text)
  std::vector<int32_t>
      first_key;  // index in the row of the first token of the same document (0 everywhere without document masking)
  std::vector<int32_t>
      positions;  // index within the document's part of this row (without document masking: within the row)
  int64_t target_count() const;
  void resize(int64_t new_rows, int64_t new_length);  // contents are unspecified
  TokenRow row(int64_t index);
};

struct LoaderOptions {
  int64_t length = 256;        // T
  bool mask_documents = true;  // attention and targets stay within a document
  bool shuffle = true;
  uint64_t seed = 0;
  bool best_fit = false;  // rows of whole documents (loam/data/best_fit.h) instead of windows of the stream
};

// An epoch is every row once, permuted by a keyed bijection (a Feistel network over Philox with cycle walking: Black
// and Rogaway 2002), which needs no memory. Rows are, of the stream, windows of T + 1 tokens that start at multiples of
// T (targets are the window shifted by one, so consecutive windows share one token); or those of best-fit packing,
// which end in padding where nothing fits: the end of text, without targets, a part of its own where documents are
// masked.
class Loader {
 public:
  // Error{kInvalidArgument} if the set has fewer tokens than a window needs.
  Loader(std::shared_ptr<const TokenSet> set, LoaderOptions options);
  // The same errors, without the work.
  static void check(const TokenSet& set, const LoaderOptions& options);

  const TokenSet& set() const { return *set_; }
  int64_t samples_per_epoch() const { return samples_; }
  double padding_share() const;  // of the tokens of an epoch
  void set_seed(uint64_t seed) { options_.seed = seed; }
  // Sample s lies in epoch s / samples_per_epoch().
  void fill_row(int64_t sample, const TokenRow& row) const;
  // Row r of the result is sample `first_sample + r`.
  void fill(int64_t first_sample, int64_t rows, TokenBatch& batch) const;

 private:
  int64_t row_of(int64_t sample) const;
  void fill_window(int64_t begin, const TokenRow& row) const;
  void fill_packed(int64_t index, const TokenRow& row) const;
  std::shared_ptr<const TokenSet> set_;
  LoaderOptions options_;
  std::optional<BestFitPlan> plan_;
  int64_t samples_ = 0;
};

// A permutation of [0, n): the image of `index` under the key.
uint64_t permute_index(uint64_t index, uint64_t n, uint64_t seed, uint64_t epoch);

}  // namespace loam
