// The directory of a run: config.json, checkpoints/, metrics.jsonl, events.out.tfevents.*, loss.png, model/.
#pragma once

#include <optional>

#include "loam/format/checkpoint.h"
#include "loam/train/trainer.h"

namespace loam {

// Where a run starts: the checkpoint it continues, if any. Writes nothing. Error{kAlreadyExists} if the options do not
// allow what is in the directory: files of something else, a run that shall not be continued, or later checkpoints of a
// run that shall go on from an earlier one; `force` lifts the last two.
std::optional<Path> find_start(const RunOptions& options);

// Makes the directory and removes what `force` gave up: a whole earlier run, or the checkpoints after `start`.
void prepare_run_directory(const RunOptions& options, const std::optional<Path>& start);

// Held while a run writes to its directory. Error{kAlreadyExists} if another process holds it.
class RunLock {
 public:
  explicit RunLock(const Path& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

// Exports the model to OUT/model, whole or not at all, with the tokenizer.json of `data` beside it.
void write_model_directory(Trainer& trainer, const Path& out, const Path& data);

}  // namespace loam
