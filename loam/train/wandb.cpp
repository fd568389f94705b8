#include "loam/train/wandb.h"

#include <algorithm>
#include <ctime>
#include <map>

#include "loam/base/error.h"
#include "loam/base/hash.h"
#include "loam/train/metrics.h"
#include "loam/train/protobuf.h"
#include "loam/train/run_summary.h"

namespace loam {
namespace {

using namespace protobuf;  // NOLINT

constexpr size_t kBlock = 32768, kHeader = 7;
enum RecordType : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
// Fields of Record.
enum RecordField : uint32_t { kHistory = 2, kSummary = 3, kRun = 17, kExit = 18, kHeaderField = 21 };

std::string record(int64_t number, RecordField field, std::string_view message) {
  std::string out;
  put_varint(out, 1, static_cast<uint64_t>(number));
  put_bytes(out, field, message);
  return out;
}

// ConfigItem, HistoryItem and SummaryItem alike.
std::string item(const std::string& key, const Json& value) {
  std::string out;
  put_bytes(out, 1, key);
  put_bytes(out, 16, value.dump());
  return out;
}

std::string header_message() {
  std::string version, header;
  put_bytes(version, 1, "loam");
  put_bytes(header, 1, version);
  return header;
}

std::string timestamp(int64_t seconds) {
  std::string out;
  put_varint(out, 1, static_cast<uint64_t>(seconds));
  return out;
}

std::string run_message(const RunInfo& run, const std::string& name, int64_t started) {
  std::string config, message;
  for (const auto& [key, value] : run.config.as_object()) put_bytes(config, 1, item(key, value));
  put_bytes(message, 1, run.id);
  put_bytes(message, 3, "loam");
  put_bytes(message, 4, config);
  put_bytes(message, 8, name);
  put_bytes(message, 17, timestamp(started));
  return message;
}

std::string exit_message(const RunInfo& run) {
  std::string message;
  constexpr uint64_t kError = 1, kInterrupted = 255;  // as the client says it
  if (run.status == "stopped") put_varint(message, 1, kError);
  if (run.status == "interrupted") put_varint(message, 1, kInterrupted);
  put_varint(message, 2, static_cast<uint64_t>(run.seconds));
  return message;
}

// When the run's first process began, of run.json; the epoch if it does not say.
std::tm started_at(const Path& run) {
  std::tm when{};
  when.tm_year = 70;
  when.tm_mday = 1;
  if (!std::filesystem::exists(run / "run.json")) return when;
  const Json file = Json::parse(read_file(run / "run.json"), (run / "run.json").string());
  const Json* starts = file.is_object() ? file.find("starts") : nullptr;
  if (!starts || !starts->is_array() || starts->as_array().empty()) return when;
  const Json* text = starts->as_array()[0].find("started");
  std::tm found{};
  if (text && text->is_string() && ::strptime(text->as_string().c_str(), "%Y-%m-%dT%H:%M:%S", &found)) return found;
  return when;
}

// The numbers of one step; W&B wants steps in ascending order, each once.
struct Row {
  double time = 0;
  std::map<std::string, double> numbers;
};

std::map<int64_t, Row> rows_of(const RunInfo& run) {
  std::map<int64_t, Row> rows;
  for (const Json& json : run.records) {
    const Scalars scalars = scalars_of(json);
    if (scalars.empty()) continue;
    Row& row = rows[json.at("step").as_int()];
    row.time = std::max(row.time, json.at("time").as_double());
    for (const auto& [tag, number] : scalars) row.numbers[tag] = number;
  }
  return rows;
}

}  // namespace

WandbLog::WandbLog() {
  bytes_ = ":W&B";
  put_little_endian(bytes_, 0xBEE1, 2);
  bytes_.push_back(0);  // version
}

void WandbLog::put(std::string_view data, uint8_t type) {
  const std::string typed = std::string(1, static_cast<char>(type)) + std::string(data);
  put_little_endian(bytes_, crc32(typed), 4);
  put_little_endian(bytes_, data.size(), 2);
  bytes_ += typed;
}

void WandbLog::add(std::string_view record) {
  size_t left = kBlock - bytes_.size() % kBlock;
  if (left < kHeader) {
    bytes_.append(left, '\0');
    left = kBlock;
  }
  if (record.size() + kHeader <= left) return put(record, kFull);
  for (RecordType type = kFirst; type != kLast; left = kBlock) {
    const size_t size = std::min(record.size(), left - kHeader);
    put(record.substr(0, size), type);
    record.remove_prefix(size);
    type = record.size() + kHeader <= kBlock ? kLast : kMiddle;
  }
  put(record, kLast);
}

Path write_wandb_run(const Path& directory) {
  RunInfo run = read_run(directory);
  if (run.id.empty()) run.id = hash_hex(std::filesystem::weakly_canonical(directory).string()).substr(0, 8);
  std::tm started = started_at(directory);
  const int64_t seconds = ::timegm(&started);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d_%H%M%S", &started);

  WandbLog log;
  int64_t number = 0;
  log.add(record(++number, kHeaderField, header_message()));
  log.add(record(++number, kRun, run_message(run, std::filesystem::absolute(directory).filename().string(), seconds)));
  std::map<std::string, double> last;
  for (const auto& [step, row] : rows_of(run)) {
    std::string message, at;
    for (const auto& [tag, value] : row.numbers) put_bytes(message, 1, item(tag, value)), last[tag] = value;
    put_bytes(message, 1, item("_step", step));
    put_bytes(message, 1, item("_runtime", row.time));
    put_bytes(message, 1, item("_timestamp", static_cast<double>(seconds) + row.time));
    put_varint(at, 1, static_cast<uint64_t>(step));
    put_bytes(message, 2, at);
    log.add(record(++number, kHistory, message));
  }
  std::string summary;
  for (const auto& [tag, value] : last) put_bytes(summary, 1, item(tag, value));
  log.add(record(++number, kSummary, summary));
  log.add(record(++number, kExit, exit_message(run)));

  const Path out = directory / "wandb" / fmt::format("offline-run-{}-{}", stamp, run.id);
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot create: {}", out.string(), error.message());
  write_file_atomic(out / fmt::format("run-{}.wandb", run.id), log.bytes());
  return out;
}

}  // namespace loam
