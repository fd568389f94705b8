#include "loam/text/count_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <regex>
#include <system_error>

#include "loam/base/error.h"
#include "loam/base/parallel_for.h"

namespace loam {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kFormat = "loam counted pieces";
constexpr int64_t kVersion = 1;
constexpr size_t kMaxRuns = 64;  // more become one: each is a file that is open while they are merged

std::string run_name(int64_t number) { return fmt::format("run-{:06}", number); }

// Whether this class makes files of this name, or leaves them where it is killed: "run-000012", "manifest.json", and
// what writing them makes beside them.
bool is_ours(const fs::directory_entry& entry) {
  static const std::regex kNames(R"((run-\d{6,18}|manifest\.json)|\.(run-\d{6,18}|manifest\.json)\.tmp-[-0-9]+)");
  std::error_code error;
  return entry.symlink_status(error).type() == fs::file_type::regular &&
         std::regex_match(entry.path().filename().string(), kNames);
}

}  // namespace

CountStore::CountStore(Path directory) : directory_(std::move(directory)) {}

CountStore::~CountStore() {
  if (lock_ >= 0) ::close(lock_);
}

bool CountStore::has_state() const {
  std::error_code ignored;
  return fs::exists(directory_ / kManifest, ignored);
}

Json CountStore::load() {
  lock();
  const Path path = directory_ / kManifest;
  const Json manifest = Json::parse(read_file(path, int64_t{1} << 30), path.string());
  try {
    if (manifest.at("format").as_string() != kFormat || manifest.at("version").as_int() != kVersion) {
      fail(ErrorCode::kBadFormat, "format is not \"{}\", version {}", kFormat, kVersion);
    }
    runs_.clear();
    for (const Json& run : manifest.at("runs").as_array()) {
      const int64_t crc = run.at("crc32c").as_int(), number = run.at("number").as_int();
      if (number < 0 || number > int64_t{1} << 50) fail(ErrorCode::kBadFormat, "a run has the number {}", number);
      runs_.push_back({run_name(number), run.at("bytes").as_int(), static_cast<uint32_t>(crc)});
      next_number_ = std::max(next_number_, number + 1);
    }
    saved_ = runs_.size();
    remove_unlisted();
    return manifest.at("state");
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", path.string(), error.what());
  }
}

void CountStore::add_run(std::vector<PieceCounter>& tables) {
  lock();
  const bool empty = std::all_of(tables.begin(), tables.end(), [](const PieceCounter& t) { return t.size() == 0; });
  if (empty) return;
  std::vector<std::unique_ptr<PieceStream>> streams(tables.size());
  const int threads = static_cast<int>(tables.size());
  parallel_tasks(threads, threads, [&](int64_t i, int) { streams[i] = stream_of(tables[i]); });  // sorts
  runs_.push_back(write_run(directory_, run_name(next_number_), std::move(streams)));
  ++next_number_;
  for (PieceCounter& table : tables) table = PieceCounter();
}

void CountStore::save(const Json& state) {
  lock();
  if (runs_.size() > kMaxRuns) {
    runs_ = {write_run(directory_, run_name(next_number_), open_runs())};
    ++next_number_;
  }
  Json runs = Json::array();
  for (const RunFile& run : runs_) {
    Json entry;
    entry["number"] = int64_t{std::stoll(run.name.substr(4))};
    entry["bytes"] = run.bytes;
    entry["crc32c"] = int64_t{run.crc};
    runs.push_back(std::move(entry));
  }
  Json manifest;
  manifest["format"] = kFormat;
  manifest["version"] = kVersion;
  manifest["state"] = state;
  manifest["runs"] = std::move(runs);
  write_file_atomic(directory_ / kManifest, manifest.dump(1) + "\n");
  saved_ = runs_.size();
  remove_unlisted();
}

void CountStore::for_each(const PieceVisitor& visit) const { merge_streams(open_runs(), visit); }

void CountStore::remove() {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(directory_, error))) return;
  if (!fs::is_directory(directory_, error)) {
    fail(ErrorCode::kAlreadyExists, "{}: is no directory; it is not removed", directory_.string());
  }
  lock();
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    if (is_ours(entry)) continue;
    fail(ErrorCode::kAlreadyExists, "{}: holds {}, which is no file of counted pieces; it is not removed",
         directory_.string(), entry.path().filename().string());
  }
  // The manifest goes first: what is left by a kill then is no state.
  fs::remove(directory_ / kManifest, error);
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    if (is_ours(*it)) fs::remove(it->path(), error);
  }
  if (!error && !fs::is_symlink(directory_)) fs::remove(directory_, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot remove: {}", directory_.string(), error.message());
  ::close(lock_);
  lock_ = -1;
  runs_.clear();
  saved_ = 0;
}

void CountStore::lock() {
  if (lock_ >= 0) return;
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot create: {}", directory_.string(), error.message());
  const int fd = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(ErrorCode::kIo, "{}: cannot open: {}", directory_.string(), std::strerror(errno));
  // A file system without locks lets all in.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd);
    fail(ErrorCode::kUnavailable, "{}: another process counts there", directory_.string());
  }
  lock_ = fd;
}

void CountStore::remove_unlisted() const {
  std::error_code ignored;
  std::vector<Path> found;
  for (const auto& entry : fs::directory_iterator(directory_, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool listed = std::any_of(runs_.begin(), runs_.end(), [&](const RunFile& run) { return run.name == name; });
    if (is_ours(entry) && name != kManifest && !listed) found.push_back(entry.path());
  }
  for (const Path& path : found) fs::remove(path, ignored);
}

std::vector<std::unique_ptr<PieceStream>> CountStore::open_runs() const {
  std::vector<std::unique_ptr<PieceStream>> streams;
  for (const RunFile& run : runs_) streams.push_back(open_run(directory_, run));
  return streams;
}

}  // namespace loam
