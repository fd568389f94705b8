// The bytes of TensorBoard's event files. Formats: TensorFlow's record_writer.h, event.proto and summary.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace loam {

// A TFRecord: u64 length, masked CRC-32C of these 8 bytes, data, masked CRC-32C of the data; little-endian.
std::string tfrecord(std::string_view data);

// Event messages. The first one of a file is the version; a restart tells the reader to forget what earlier files said
// of the steps from `step` on.
std::string version_event(double wall_time);
std::string restart_event(double wall_time, int64_t step);
std::string scalar_event(double wall_time, int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

}  // namespace loam
