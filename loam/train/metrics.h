// What a run says about itself: metrics.jsonl, TensorBoard events and loss.png in the run's directory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"

namespace loam {

using Scalars = std::vector<std::pair<std::string, double>>;  // tag and value
// The numbers of a record for other programs' curves: {"train/loss", 2.5}, ...
Scalars scalars_of(const Json& record);

// One JSON object a line: {"kind": "start"|"train"|"val"|"layers"|"sample"|"spike"|"rewind"|"stopped", "step": ...,
// "time": seconds of training,
// ...}; docs/formats.md lists the members of each kind. TensorBoard's events repeat the numbers of "train" and "val".
//
// Opening it drops, in both, what an earlier life of the run said of steps after `resume_step`, and a torn last line,
// so that no step appears twice and none is lost. Other damaged lines are dropped with one warning. `expected` is the
// number of records that there must be up to `resume_step` at least; if there are fewer, that is a warning too.
class MetricsLog {
 public:
  MetricsLog(const Path& run_directory, int64_t resume_step, int64_t expected = 0);
  ~MetricsLog();
  MetricsLog& operator=(MetricsLog&&) noexcept;
  void write(const Json& record);
  int64_t size() const;  // records, those of earlier lives included
  int64_t count(const std::string& kind) const;
  // Step and loss of the validations, in order; of several sets those of the first.
  const std::vector<std::pair<double, double>>& validations() const;
  // Goes back: drops what was said of steps after `step`.
  void drop_after(int64_t step);
  // Returns when what was written will survive a crash of the machine.
  void sync();
  // Whether there is a record of this kind and step; "val/NAME" is that of the validation set NAME.
  bool has(const std::string& kind, int64_t step) const;
  // The same of a run that is not opened; writes nothing.
  static bool has(const Path& run_directory, const std::string& kind, int64_t step);
  // Draws loss.png from all records (training loss, validation loss against the step). Without gnuplot: one warning, no
  // picture.
  void plot() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
