#include "loam/train/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>

#include "loam/base/log.h"

namespace loam {
namespace {

namespace fs = std::filesystem;

Path checkpoints_of(const RunOptions& options) { return options.out / "checkpoints"; }

bool is_output_of_run(const std::string& name) {
  return name == "config.json" || name == "checkpoints" || name == "metrics.jsonl" || name == "loss.png" ||
         name == "model" || name.starts_with("events.out.tfevents.");
}

// What a kill while an output was written left beside it: ".model.tmp-..." and the like.
bool is_leftover(const std::string& name) {
  const size_t end = std::min(name.find(".tmp-"), name.find(".old-"));
  return name.starts_with('.') && end != name.npos && is_output_of_run(name.substr(1, end - 1));
}

void remove_entries(const Path& directory, bool (*doomed)(const std::string& name)) {
  std::vector<Path> paths;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (doomed(entry.path().filename().string())) paths.push_back(entry.path());
  }
  for (const Path& path : paths) fs::remove_all(path);
}

enum class Contents { nothing, run, other };

// A run writes config.json before anything else. Another program's file of that name has keys that are no settings.
bool is_training_config(const Path& path) {
  try {
    const Json json = Json::parse(read_file(path, int64_t{1} << 24), path.string());
    TrainConfig config;
    config_from_json(config, json);
    return json.find("optimizer") && json.find("model");
  } catch (const Error&) {
    return false;
  }
}

// Hidden files (temporary ones of a killed run, the lock) count as nothing.
Contents contents_of(const Path& directory) {
  std::error_code error;
  if (!fs::exists(directory, error)) return Contents::nothing;
  if (!fs::is_directory(directory, error)) fail(ErrorCode::kAlreadyExists, "{} is not a directory", directory.string());
  bool anything = false;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" && is_training_config(entry.path())) return Contents::run;
    anything = anything || !name.starts_with('.');
  }
  return anything ? Contents::other : Contents::nothing;
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

bool lies_in(const Path& checkpoint, const Path& directory) {
  std::error_code error;
  return fs::equivalent(checkpoint.parent_path(), directory, error);
}

std::optional<Path> find_given_start(const RunOptions& options, Contents contents) {
  std::error_code error;
  const Path start = fs::canonical(*options.resume_from, error);  // so that its parent is the directory that it lies in
  if (error) fail(ErrorCode::kNotFound, "checkpoint '{}': {}", options.resume_from->string(), error.message());
  verify_checkpoint(start);
  if (contents != Contents::run || options.force) return start;
  if (!lies_in(start, checkpoints_of(options))) {
    fail(ErrorCode::kAlreadyExists, "{} holds another run than the checkpoint {}: --force replaces it",
         options.out.string(), start.string());
  }
  if (const auto later = later_checkpoints(options, start); !later.empty()) {
    fail(ErrorCode::kAlreadyExists, "{} has later checkpoints than {} (up to step {}): --force removes them",
         options.out.string(), start.filename().string(), later.back().step);
  }
  return start;
}

}  // namespace

std::optional<Path> find_start(const RunOptions& options) {
  const Contents contents = contents_of(options.out);
  if (contents == Contents::other) {
    fail(ErrorCode::kAlreadyExists, "{} is not empty and holds no run of loam", options.out.string());
  }
  if (options.resume_from) return find_given_start(options, contents);
  if (options.resume == RunOptions::Resume::never) {
    if (contents == Contents::run && !options.force) {
      fail(ErrorCode::kAlreadyExists, "{} holds a run: --resume auto continues it, --resume never --force replaces it",
           options.out.string());
    }
    return std::nullopt;
  }
  const CheckpointStore store(checkpoints_of(options));
  if (const auto newest = store.newest_complete()) return newest->path;
  if (!store.list().empty()) {
    fail(ErrorCode::kBadFormat, "{}: no checkpoint is complete; --resume never --force starts again from step 0",
         checkpoints_of(options).string());
  }
  return std::nullopt;
}

void prepare_run_directory(const RunOptions& options, const std::optional<Path>& start) {
  fs::create_directories(options.out);
  remove_entries(options.out, is_leftover);
  const bool continues =
      start ? lies_in(*start, checkpoints_of(options)) : options.resume == RunOptions::Resume::automatic;
  if (!continues) {
    remove_entries(options.out, is_output_of_run);
  } else if (start && options.force) {
    for (const CheckpointInfo& info : later_checkpoints(options, *start)) fs::remove_all(info.path);
  }
}

RunLock::RunLock(const Path& directory) {
  const Path path = directory / ".lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(ErrorCode::kIo, "{}: cannot create", path.string());
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd_);
    fail(ErrorCode::kAlreadyExists, "{}: another process is training there", directory.string());
  }
}

RunLock::~RunLock() { ::close(fd_); }

void write_model_directory(Trainer& trainer, const Path& out, const Path& data) {
  AtomicDirectory directory(out / "model", true);
  trainer.export_model(directory.path());
  if (const Path tokenizer = data / "tokenizer.json"; fs::exists(tokenizer)) {
    write_file_atomic(directory.path() / "tokenizer.json", read_file(tokenizer));
  } else {
    log_warn("{} has no tokenizer.json: the model directory is without one", data.string());
  }
  directory.commit();
}

}  // namespace loam
