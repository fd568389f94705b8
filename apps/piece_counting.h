// The counting half of `loam tokenizer train`: documents from files into a trainer, with checkpoints on the way.
#pragma once

#include <cstdint>
#include <vector>

#include "loam/data/document.h"
#include "loam/text/bpe_train.h"

namespace loam {

struct CountingInput {
  std::vector<Path> files;
  DocumentReaderOptions reader;

  // What they are, for BpeTrainOptions: counts of other files, or of files read otherwise, are not resumed.
  Json source() const;
};

// How far counting has come: what a checkpoint says.
struct Counted {
  DocumentReader::Position position;
  int64_t documents = 0, bad_lines = 0;
  bool complete = false;

  Json to_json() const;
  static Counted from_json(const Json& json);
};

// Counts all texts of the files behind `counted`, with progress. A checkpoint follows each `checkpoint_every` bytes of
// text and each spill; at the end if there is one already or with `keep`.
void count_documents(const CountingInput& input, BpeTrainer& trainer, int64_t checkpoint_every, bool keep,
                     Counted& counted);

}  // namespace loam
