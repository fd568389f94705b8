#include "loam/train/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "loam/base/log.h"
#include "loam/train/model_tokenizer.h"

namespace loam {
namespace {

namespace fs = std::filesystem;

Path checkpoints_of(const RunOptions& options) { return options.out / "checkpoints"; }

bool is_output_of_run(const std::string& name) {
  return name == "config.json" || name == "checkpoints" || name == "metrics.jsonl" || name == "loss.png" ||
         name == "model" || name == "run.json" || name == "dumps" || name.starts_with("events.out.tfevents.");
}

// What a kill while an output was written left beside it: ".model.tmp-..." and the like.
bool is_leftover(const std::string& name) {
  const size_t end = std::min(name.find(".tmp-"), name.find(".old-"));
  return name.starts_with('.') && end != name.npos && is_output_of_run(name.substr(1, end - 1));
}

// config.json goes last: a kill in between leaves a directory that is still known as a run's.
void remove_entries(const Path& directory, bool (*doomed)(const std::string& name)) {
  std::vector<Path> paths;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (doomed(entry.path().filename().string())) paths.push_back(entry.path());
  }
  std::stable_partition(paths.begin(), paths.end(), [](const Path& path) { return path.filename() != "config.json"; });
  for (const Path& path : paths) fs::remove_all(path);
}

enum class Contents { nothing, run, other };

Json read_config_file(const Path& path) { return Json::parse(read_file(path, int64_t{1} << 24), path.string()); }

// Why a config.json is not a run's; "" if it is. A run writes it before anything else, and another program's file of
// that name has another shape.
std::string why_no_run(const Path& path) {
  if (!fs::exists(path)) return "there is no config.json";
  try {
    const Json json = read_config_file(path);
    for (const char* part : {"model", "optimizer"}) {
      const Json* member = json.is_object() ? json.find(part) : nullptr;
      if (!member || !member->is_object()) return fmt::format("{}: it has no object \"{}\"", path.string(), part);
    }
    return "";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kBadFormat) return error.what();
    throw;
  }
}

// A run of another version may have settings that this program does not know.
void check_config_file(const Path& path) {
  try {
    TrainConfig config;
    config_from_json(config, read_config_file(path));
  } catch (const Error& error) {
    fail(ErrorCode::kBadFormat, "{}: {}", path.string(), error.what());
  }
}

// Hidden files (temporary ones of a killed run, the lock) count as nothing, and so does a profile.
Contents contents_of(const Path& directory) {
  std::error_code error;
  if (!fs::exists(directory, error)) return Contents::nothing;
  if (!fs::is_directory(directory, error)) fail(ErrorCode::kAlreadyExists, "{} is not a directory", directory.string());
  if (why_no_run(directory / "config.json").empty()) return Contents::run;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const Path name = entry.path().filename();
    if (!name.string().starts_with('.') && name != "profile") return Contents::other;
  }
  return Contents::nothing;
}

// The checkpoints of this directory that come after `start`, if `start` is one of them.
std::vector<CheckpointInfo> later_checkpoints(const RunOptions& options, const Path& start) {
  std::vector<CheckpointInfo> later;
  bool after = false;
  std::error_code error;
  for (const CheckpointInfo& info : CheckpointStore(checkpoints_of(options)).list()) {
    if (after) later.push_back(info);
    after = after || fs::equivalent(info.path, start, error);
  }
  return later;
}

VerifiedCheckpoint find_given_start(const RunOptions& options, Contents contents) {
  std::error_code error;
  const Path start = fs::canonical(*options.resume_from, error);  // so that its parent is the directory that it lies in
  if (error) fail(ErrorCode::kNotFound, "checkpoint '{}': {}", options.resume_from->string(), error.message());
  const VerifiedCheckpoint checkpoint(start);
  if (contents != Contents::run || options.force) return checkpoint;
  if (!lies_in(start, checkpoints_of(options))) {
    fail(ErrorCode::kAlreadyExists, "{} holds another run than the checkpoint {}: --force replaces it",
         options.out.string(), start.string());
  }
  if (const auto later = later_checkpoints(options, start); !later.empty()) {
    fail(ErrorCode::kAlreadyExists, "{} has later checkpoints than {} (up to step {}): --force removes them",
         options.out.string(), start.filename().string(), later.back().step);
  }
  return checkpoint;
}

}  // namespace

bool lies_in(const Path& checkpoint, const Path& directory) {
  std::error_code error;
  return fs::equivalent(checkpoint.parent_path(), directory, error);
}

std::optional<VerifiedCheckpoint> find_start(const RunOptions& options) {
  const Contents contents = contents_of(options.out);
  if (contents == Contents::other) {
    fail(ErrorCode::kAlreadyExists, "{} is not empty and holds no run of loam: {}", options.out.string(),
         why_no_run(options.out / "config.json"));
  }
  if (contents == Contents::run && !options.force) check_config_file(options.out / "config.json");
  if (options.resume_from) return find_given_start(options, contents);
  if (options.resume == RunOptions::Resume::never) {
    if (contents == Contents::run && !options.force) {
      fail(ErrorCode::kAlreadyExists, "{} holds a run: --resume auto continues it, --resume never --force replaces it",
           options.out.string());
    }
    return std::nullopt;
  }
  const CheckpointStore store(checkpoints_of(options));
  if (auto newest = store.newest_complete()) return newest;
  if (!store.list().empty()) {
    fail(ErrorCode::kBadFormat, "{}: no checkpoint is complete; --resume never --force starts again from step 0",
         checkpoints_of(options).string());
  }
  return std::nullopt;
}

void prepare_run_directory(const RunOptions& options, const std::optional<VerifiedCheckpoint>& start) {
  remove_entries(options.out, is_leftover);
  const bool continues =
      start ? lies_in(start->path, checkpoints_of(options)) : options.resume == RunOptions::Resume::automatic;
  if (!continues) {
    remove_entries(options.out, is_output_of_run);
  } else if (start && options.force) {
    for (const CheckpointInfo& info : later_checkpoints(options, start->path)) fs::remove_all(info.path);
  }
}

RunLock::RunLock(const Path& directory) : directory_(directory), path_(directory / ".lock"), made_(directory) {
  take();
}

void RunLock::take() {
  for (;;) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) fail(ErrorCode::kIo, "{}: cannot create: {}", path_.string(), std::strerror(errno));
    int error = ::flock(fd_, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    for (int tries = 0; error == EWOULDBLOCK && tries < 5; ++tries) {  // who lists runs holds it for a moment
      ::usleep(10'000);
      error = ::flock(fd_, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    }
    if (error != 0) {
      if (error == EOPNOTSUPP || error == ENOSYS || error == ENOLCK) {
        return log_warn("{}: the file system has no locks: nothing keeps a second process from training there",
                        directory_.string());
      }
      ::close(fd_);
      if (error == EWOULDBLOCK) {
        fail(ErrorCode::kAlreadyExists, "{}: another process is training there", directory_.string());
      }
      fail(ErrorCode::kIo, "{}: cannot lock: {}", path_.string(), std::strerror(error));
    }
    // Who held it may have removed it between the two calls: then this is a lock on nothing.
    struct stat mine, there;
    if (::fstat(fd_, &mine) == 0 && ::stat(path_.c_str(), &there) == 0 && mine.st_ino == there.st_ino) return;
    ::close(fd_);
  }
}

RunLock::~RunLock() {
  ::unlink(path_.c_str());
  ::close(fd_);
}

bool has_model_of(const Path& out, const CheckpointInfo& checkpoint) {
  std::error_code error;
  const auto saved = fs::last_write_time(checkpoint.path / "MANIFEST.json", error);
  if (error) return false;
  const auto exported = fs::last_write_time(out / "model" / "config.json", error);
  return !error && exported >= saved && lies_in(checkpoint.path, out / "checkpoints");
}

namespace {

// What others have put beside the model (a model card) stays there.
void keep_other_files(const Path& from, const Path& to) {
  if (!fs::is_directory(from)) return;
  for (const auto& entry : fs::directory_iterator(from)) {
    const Path copy = to / entry.path().filename();
    if (!fs::exists(fs::symlink_status(copy)))
      fs::copy(entry.path(), copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
}

}  // namespace

void write_model_directory(Trainer& trainer, const Path& out, const Path& data) {
  AtomicDirectory directory(out / "model", true);
  Model& model = trainer.model();
  model.bos_id = write_model_tokenizer(data, directory.path(), model);
  trainer.export_model(directory.path());
  keep_other_files(out / "model", directory.path());
  directory.commit();
}

}  // namespace loam
