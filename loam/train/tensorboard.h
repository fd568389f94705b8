// TensorBoard's event files: TFRecord framing around protobuf Event messages with simple scalar values. Formats:
// TensorFlow's record_writer.h, event.proto and summary.proto.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/train/metrics.h"

namespace loam {

// A TFRecord: u64 length, masked CRC-32C of these 8 bytes, data, masked CRC-32C of the data; little-endian.
std::string tfrecord(std::string_view data);

// Event messages. The first one of a file is the version; a restart tells the reader to forget what earlier files said
// of the steps from `step` on.
std::string version_event(double wall_time);
std::string restart_event(double wall_time, int64_t step);
std::string scalar_event(double wall_time, int64_t step, const Scalars& scalars);

// The event file of one life of a run, events.out.tfevents.<seconds>.<host>: readers take the files of a directory in
// the order of their names, and this one is the last.
class TensorboardWriter {
 public:
  // If there are event files already, readers are told to drop what they say of the steps from `restart_step` on.
  TensorboardWriter(const Path& directory, int64_t restart_step);
  ~TensorboardWriter();
  bool continues() const;  // there were event files already
  void add(int64_t step, const Scalars& scalars);
  void flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
