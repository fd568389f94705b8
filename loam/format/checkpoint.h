// Training checkpoints: directories RUN/checkpoints/step-00000200 that appear whole or not at all, with a mark that
// they are complete.
//
// Layout: model.safetensors (f32 masters), optimizer.safetensors (moments), state.json (step, data position,
// configuration, ...), MANIFEST.json (size and XXH3-128 of every file, written last). A directory whose manifest is
// missing or does not agree with the files is torn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/tensor/tensor.h"

namespace loam {

struct CheckpointFile {
  std::string name;  // "model" gives model.safetensors
  std::vector<std::pair<std::string, Tensor>> tensors;
};

struct CheckpointInfo {
  Path path;
  int64_t step;
};

// One that is complete: its files agree with its manifest, contents too.
struct VerifiedCheckpoint : CheckpointInfo {
  // Error{kBadFormat} that says in what way it is torn; {kUnavailable} for another version, {kInvalidArgument} for a
  // directory named after another step, {kIo} and the like if it cannot be read.
  VerifiedCheckpoint(const Path& checkpoint);
};

// Which checkpoints stay when a new one is written: the newest `last`, those whose step is a multiple of `every`, and
// those of `steps`.
struct KeepPolicy {
  int64_t last = 0;   // 0 or less: all
  int64_t every = 0;  // 0: none for this reason
  std::vector<int64_t> steps = {};
};

// Writes and finds the checkpoints of one run. One process at a time may write.
class CheckpointStore {
 public:
  // `directory` is RUN/checkpoints; created when the first checkpoint is saved.
  explicit CheckpointStore(Path directory);

  // Temp directory, fsync, rename; a checkpoint of the same step is replaced. Then prune(). The previous ones are
  // untouched until the new one is complete. Error{kIo} (disk full) leaves the old state.
  Path save(int64_t step, const std::vector<CheckpointFile>& files, const Json& state, const KeepPolicy& keep);
  // Of the checkpoints up to `step`, removes the complete ones that `keep` does not name, from the oldest on, and torn
  // ones; those of another version or that cannot be read stay and do not count. Later steps are not looked at.
  void prune(int64_t step, const KeepPolicy& keep) const;

  // All directories named step-N, complete or not, by ascending step.
  std::vector<CheckpointInfo> list() const;
  // The newest complete one; torn ones are skipped with a warning each. nullopt if there is none. A newer one of
  // which cannot be told whether it is complete (another version, a failed read) is the error of VerifiedCheckpoint.
  std::optional<VerifiedCheckpoint> newest_complete() const;
  // Removes leftovers of interrupted saves. save() does so too.
  void clean() const;

 private:
  Path directory_;
};

Json read_checkpoint_state(const Path& checkpoint);

}  // namespace loam
