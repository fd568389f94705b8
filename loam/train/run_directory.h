// The directory of a run: config.json, checkpoints/, metrics.jsonl, events.out.tfevents.*, loss.png, model/.
#pragma once

#include <optional>
#include <vector>

#include "loam/format/checkpoint.h"
#include "loam/train/trainer.h"

namespace loam {

// Where a run starts: the checkpoint it continues, if any. Writes nothing. Error{kAlreadyExists} if the options do not
// allow what is in the directory: files of something else, a run that shall not be continued, or later checkpoints of a
// run that shall go on from an earlier one; `force` lifts the last two.
std::optional<VerifiedCheckpoint> find_start(const RunOptions& options);

// Makes the directory and removes what `force` gave up: a whole earlier run, or the checkpoints after `start`.
void prepare_run_directory(const RunOptions& options, const std::optional<VerifiedCheckpoint>& start);

// Held from before a run looks into its directory until it is done. Makes the directory; when it goes, the directories
// that it made and that are still empty go too. Error{kAlreadyExists} if another process holds it.
class RunLock {
 public:
  explicit RunLock(const Path& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  void take();
  Path directory_, path_;
  MadeDirectories made_;
  int fd_ = -1;
};

// Whether a checkpoint is one of those in `directory`.
bool lies_in(const Path& checkpoint, const Path& directory);

// Whether OUT/model was exported after this checkpoint of the same run was saved.
bool has_model_of(const Path& out, const CheckpointInfo& checkpoint);

// Exports the model to OUT/model, whole or not at all, with the tokenizer of `data` beside it.
void write_model_directory(Trainer& trainer, const Path& out, const Path& data);

}  // namespace loam
