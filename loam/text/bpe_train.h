// Training of byte-level BPE: Sennrich, Haddow and Birch, "Neural machine translation of rare words with subword units"
// (ACL 2016), on bytes as in GPT-2 (Radford et al. 2019).
//
// Start from the 256 bytes. Again and again take the adjacent pair with the highest count over all pieces (distinct
// piece times its frequency), of equal counts the greater pair of byte strings (first part compared first, then the
// second, as unsigned bytes), and make it a token. The result is a pure function of the multiset of documents:
// independent of their order, of the number of threads, and of what was put on disk meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/text/pretokenizer.h"
#include "loam/text/simple_models.h"
#include "loam/text/tokenizer_model.h"

namespace loam {

struct BpeTrainOptions {
  int64_t vocab_size = 8192;  // counts the 256 bytes and the special tokens
  std::vector<std::string> special_tokens;
  Pretokenizer pretokenizer;
  int threads = 1;
  int64_t min_frequency =
      2;  // a pair seen less often is never merged; fewer tokens than vocab_size result, with a warning
  int64_t max_token_length = 0;  // bytes; 0: any
  // Bytes. A quarter is for counts: more of them go to disk, or without `directory` are an Error{kOutOfMemory}. The
  // whole is for merging: where the distinct pieces need more, the rarest are left out, with a warning that says how
  // many; of equally rare ones, those of the greatest hash.
  int64_t memory = 4'000'000'000;
  Path directory;  // for counts on disk; made when it is needed
  Json source;     // what is counted, as an object: counts of something else are not resumed
};

// What did not fit in memory while merging.
struct DroppedPieces {
  int64_t pieces = 0;       // distinct
  int64_t occurrences = 0;  // of all of them
};

// Counts pieces, then learns merges; 64-bit counts.
class BpeTrainer {
 public:
  // Error{kInvalidArgument} if vocab_size < 256 + specials, or special tokens repeat or are empty.
  explicit BpeTrainer(BpeTrainOptions options);
  ~BpeTrainer();
  BpeTrainer(const BpeTrainer&) = delete;
  BpeTrainer& operator=(const BpeTrainer&) = delete;

  // Counts one document `weight` times. Special tokens inside it are cut out first, so no pair spans them. Line ends
  // are kept as they are. Error{kInvalidArgument} for a negative weight, or if weighted lengths sum up to 2^63. After
  // an Error the counts are of no use but through resume().
  void add_document(std::string_view text, int64_t weight = 1);
  // The same for many documents, on all threads.
  void add_documents(const std::vector<std::string_view>& texts);

  // Resuming. checkpoint() puts all counts on disk together with `position`, the caller's mark of how far it has read;
  // resume() gives the last one, with the counts that belong to it. Error{kInvalidArgument} if these are counts of
  // another source or other pieces. A kill at any moment leaves the last checkpoint.
  void checkpoint(const Json& position);
  std::optional<Json> resume();
  bool has_checkpoint() const;
  // Whether counts have gone to disk since the last checkpoint.
  bool has_spilled() const;
  // Removes what is on disk. Error{kAlreadyExists} if other files lie in `directory`.
  void discard();

  int64_t distinct_pieces() const;
  // The most frequent pieces, of equal counts the one that is less by bytes first; those seen min_frequency times.
  std::vector<PieceCount> most_frequent(int64_t count) const;
  int64_t total_bytes() const;
  int64_t memory_used() const;  // by counts

  // Merges in order of creation (number i makes the token 256 + i), with progress; check_interrupt() between merges.
  // The counts in memory are gone after it.
  std::vector<Merge> train();
  const DroppedPieces& dropped() const;  // by train()

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
