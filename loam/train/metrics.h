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

// TensorBoard's event file: TFRecord framing (length, masked CRC-32C, data, masked CRC-32C) around protobuf Event
// messages with simple scalar values.
class TensorboardWriter {
 public:
  // A new file events.out.tfevents.<seconds>.<host>. With restart_step >= 0 it tells readers to drop what earlier files
  // say of the steps from there on.
  explicit TensorboardWriter(const Path& directory, int64_t restart_step = -1);
  ~TensorboardWriter();
  void add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  void flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One JSON object a line: {"kind": "train"|"val"|"sample", "step": ..., "time": seconds of training, ...}. Lines after
// `resume_step` of an earlier life of the run are dropped on opening, so that no step appears twice; a torn last line
// too.
class MetricsLog {
 public:
  MetricsLog(const Path& run_directory, int64_t resume_step);
  ~MetricsLog();
  void write(const Json& record);
  // Whether there is a record of this kind and step.
  bool has(const std::string& kind, int64_t step) const;
  // Draws loss.png from all records (training loss, validation loss against the step). Without gnuplot: one warning, no
  // picture.
  void plot() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
