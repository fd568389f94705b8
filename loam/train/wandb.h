// A run for Weights & Biases: the offline form that its client uploads (`wandb sync`). The file is a log in LevelDB's
// format (https://github.com/google/leveldb/blob/main/doc/log_format.md, with zlib's CRC-32 and a header of its own) of
// protobuf messages `Record` (wandb/proto/wandb_internal.proto).
#pragma once

#include <string>
#include <string_view>

#include "loam/base/file.h"

namespace loam {

// The bytes of a .wandb file.
class WandbLog {
 public:
  WandbLog();
  void add(std::string_view record);  // a serialized Record
  const std::string& bytes() const { return bytes_; }

 private:
  void put(std::string_view data, uint8_t type);
  std::string bytes_;
};

// Writes RUN/wandb/offline-run-STARTED-ID/run-ID.wandb anew from what the run directory says: its id, configuration,
// and a row of numbers for every step with some (under the tags of TensorBoard). Gives the directory to sync. A run
// that went on is the same run there, by its id. Error as read_run (loam/train/run_summary.h).
Path write_wandb_run(const Path& run);

}  // namespace loam
