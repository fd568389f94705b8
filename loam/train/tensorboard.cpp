#include "loam/train/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "loam/base/error.h"
#include "loam/base/hash.h"
#include "loam/train/protobuf.h"

namespace loam {
namespace {

using namespace protobuf;  // NOLINT

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string event_header(double wall_time, int64_t step) {
  std::string event;
  put_double(event, 1, wall_time);
  if (step != 0) put_varint(event, 2, static_cast<uint64_t>(step));
  return event;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string tfrecord(std::string_view data) {
  std::string record;
  put_little_endian(record, data.size(), 8);
  put_little_endian(record, masked_crc(record), 4);
  record += data;
  put_little_endian(record, masked_crc(data), 4);
  return record;
}

std::string version_event(double wall_time) {
  std::string event = event_header(wall_time, 0);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string restart_event(double wall_time, int64_t step) {
  constexpr uint64_t kStart = 1;
  std::string session, event = event_header(wall_time, step);
  put_varint(session, 1, kStart);
  put_bytes(event, 7, session);
  return event;
}

std::string scalar_event(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary, event = event_header(wall_time, step);
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, 1, tag);
    put_float(value, 2, static_cast<float>(number));
    put_bytes(summary, 1, value);
  }
  put_bytes(event, 5, summary);
  return event;
}

struct TensorboardWriter::State {
  Path path;
  std::FILE* file = nullptr;
  bool continues = false;

  void write(const std::string& event) {
    const std::string record = tfrecord(event);
    if (std::fwrite(record.data(), 1, record.size(), file) != record.size()) {
      fail(ErrorCode::kIo, "{}: cannot write", path.string());
    }
  }
};

namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The latest second in the names of a directory's event files; -1 if there are none.
int64_t newest_second(const Path& directory) {
  int64_t newest = -1;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    uint32_t second = 0;  // 0 for a name that no writer gave
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), second);
    newest = std::max(newest, int64_t{second});
  }
  return newest;
}

}  // namespace

TensorboardWriter::TensorboardWriter(const Path& directory, int64_t restart_step) : state_(std::make_unique<State>()) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const int64_t newest = newest_second(directory);
  state_->continues = newest >= 0;
  // Later than all others even if the clock was set back or two lives begin within a second.
  const int64_t second = std::max(static_cast<int64_t>(now()), newest + 1);
  state_->path = directory / fmt::format("{}{}.{}", kPrefix, second, host);
  state_->file = std::fopen(state_->path.c_str(), "wbxe");
  if (!state_->file) fail(ErrorCode::kIo, "{}: cannot create", state_->path.string());
  state_->write(version_event(now()));
  if (state_->continues) state_->write(restart_event(now(), restart_step));
}

TensorboardWriter::~TensorboardWriter() {
  if (state_->file) std::fclose(state_->file);
}

bool TensorboardWriter::continues() const { return state_->continues; }

void TensorboardWriter::add(int64_t step, const Scalars& scalars) { state_->write(scalar_event(now(), step, scalars)); }

void TensorboardWriter::flush() {
  if (std::fflush(state_->file) != 0) fail(ErrorCode::kIo, "{}: cannot write", state_->path.string());
}

}  // namespace loam
