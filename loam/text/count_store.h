// Counted pieces on disk: what the training of a tokenizer puts there when memory is full, and from where a run that
// was killed goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/text/piece_runs.h"

namespace loam {

// A directory of runs and a manifest, which says which of them count, with a state of the caller's. Nothing is made
// before it is needed. A run that the manifest doesn't name is as good as not written, so the directory is whole at
// every moment. One process at a time may use it: it holds a lock.
class CountStore {
 public:
  explicit CountStore(Path directory);
  ~CountStore();
  CountStore(const CountStore&) = delete;
  CountStore& operator=(const CountStore&) = delete;

  const Path& directory() const { return directory_; }
  // Whether there is a manifest.
  bool has_state() const;
  // The state saved last; what was written after it is removed. REQUIRES: has_state(). Error{kBadFormat} for a manifest
  // that save() has not written, Error{kUnavailable} while another process uses the directory.
  Json load();

  // Moves what the tables hold into a new run.
  void add_run(std::vector<PieceCounter>& tables);
  // Writes the manifest: from now on load() gives `state` and all runs there are. Many runs become one.
  void save(const Json& state);
  // The pieces of all runs, each once, in ascending order.
  void for_each(const PieceVisitor& visit) const;
  bool empty() const { return runs_.empty(); }
  bool has_unsaved_runs() const { return runs_.size() > saved_; }

  // Removes the directory. Error{kAlreadyExists} if it holds what is not of this kind.
  void remove();

 private:
  void lock();
  void remove_unlisted() const;
  std::vector<std::unique_ptr<PieceStream>> open_runs() const;

  Path directory_;
  std::vector<RunFile> runs_;
  size_t saved_ = 0;  // how many of them the manifest names
  int64_t next_number_ = 0;
  int lock_ = -1;  // a descriptor of the directory
};

}  // namespace loam
