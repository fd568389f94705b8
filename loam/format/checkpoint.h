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

// Writes and finds the checkpoints of one run. One process at a time may write.
class CheckpointStore {
 public:
  // `directory` is RUN/checkpoints; created when the first checkpoint is saved.
  explicit CheckpointStore(Path directory);

  // Temp directory, fsync, rename; a checkpoint of the same step is replaced. Then removes what `keep_last` no longer
  // keeps: of the complete checkpoints up to `step` the newest `keep_last` stay (0 or less: all); torn ones go, those
  // of another version or that cannot be read stay and do not count, later steps are not looked at. The previous ones
  // are untouched until the new one is complete. Error{kIo} (disk full) leaves the old state.
  Path save(int64_t step, const std::vector<CheckpointFile>& files, const Json& state, int64_t keep_last);

  // All directories named step-N, complete or not, by ascending step.
  std::vector<CheckpointInfo> list() const;
  // The newest complete one; torn ones are skipped with a warning each. nullopt if there is none. A newer one of
  // which cannot be told whether it is complete (another version, a failed read) is the error of VerifiedCheckpoint.
  std::optional<VerifiedCheckpoint> newest_complete() const;
  // Removes leftovers of interrupted saves. save() does so too.
  void clean() const;

 private:
  void prune(int64_t step, int64_t keep_last) const;
  Path directory_;
};

Json read_checkpoint_state(const Path& checkpoint);

}  // namespace loam
