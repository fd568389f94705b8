#include "loam/format/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "loam/base/error.h"
#include "loam/base/hash.h"
#include "loam/base/log.h"
#include "loam/base/mmap.h"
#include "loam/format/safetensors.h"

namespace loam {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kState = "state.json";
constexpr const char* kFormat = "loam checkpoint";
constexpr int64_t kVersion = 1;
constexpr int64_t kMaxJson = 64 << 20;  // bytes of a manifest or state that is still read

std::string directory_name(int64_t step) { return fmt::format("step-{:08}", step); }

// The step of "step-N", or -1.
int64_t step_of(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && step >= 0 ? step : -1;
}

// Whether a hidden directory is what an interrupted save or removal left: ".step-N.KIND-..." as AtomicDirectory names
// it, and remove_checkpoint().
bool is_leftover(std::string_view name) {
  return name.starts_with(".step-") &&
         (name.find(".tmp-") != name.npos || name.find(".old-") != name.npos || name.ends_with(".removed"));
}

std::vector<Path> entries_of(const Path& directory) {
  std::vector<Path> entries;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  if (error == std::errc::no_such_file_or_directory) return entries;
  if (error) fail(ErrorCode::kIo, "{}: cannot list: {}", directory.string(), error.message());
  for (const auto& entry : it) entries.push_back(entry.path());
  return entries;
}

// A removal that is cut short leaves no half directory under a checkpoint's name.
void remove_checkpoint(const Path& checkpoint) {
  const Path doomed = checkpoint.parent_path() / fmt::format(".{}.removed", checkpoint.filename().string());
  std::error_code error;
  fs::remove_all(doomed, error);
  fs::rename(checkpoint, doomed, error);
  if (!error) fs::remove_all(doomed, error);
  if (error) log_warn("{}: cannot remove: {}", checkpoint.string(), error.message());
}

Json describe_file(const Path& path) {
  const MappedFile map(path);
  return Json::Object{{"bytes", map.size()}, {"xxh3_128", hash_hex(map.text())}};
}

[[noreturn]] void fail_torn(const Path& checkpoint, const std::string& what) {
  fail(ErrorCode::kBadFormat, "{}: not a complete checkpoint: {}", checkpoint.string(), what);
}

void verify_file(const Path& checkpoint, const std::string& name, const Json& expected, bool deep) {
  const bool plain = !name.empty() && name.find('/') == name.npos && name.find('\0') == name.npos && name != "..";
  const Json *bytes = expected.is_object() ? expected.find("bytes") : nullptr,
             *hash = expected.is_object() ? expected.find("xxh3_128") : nullptr;
  if (!plain || !bytes || !bytes->is_int() || !hash || !hash->is_string()) {
    fail_torn(checkpoint, fmt::format("{}: unreadable entry", kManifest));
  }
  std::error_code error;
  const uintmax_t size = fs::file_size(checkpoint / name, error);
  if (error == std::errc::no_such_file_or_directory) fail_torn(checkpoint, fmt::format("there is no {}", name));
  if (error) fail(ErrorCode::kIo, "{}: {}", (checkpoint / name).string(), error.message());
  if (size != static_cast<uintmax_t>(bytes->as_int())) {
    fail_torn(checkpoint, fmt::format("{} has {} bytes, its manifest says {}", name, size, bytes->as_int()));
  }
  if (deep && hash_hex(MappedFile(checkpoint / name).text()) != hash->as_string()) {
    fail_torn(checkpoint, fmt::format("{}: the contents differ from the manifest's hash", name));
  }
}

// Gives the step of a complete checkpoint. `deep` also checks the hashes of the contents, not just the sizes.
// Error{kBadFormat} means torn, and nothing else does.
int64_t verify_checkpoint(const Path& checkpoint, bool deep) {
  const Path path = checkpoint / kManifest;
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (error) fail(ErrorCode::kIo, "{}: {}", path.string(), error.message());
  if (!there) fail_torn(checkpoint, fmt::format("there is no {}", kManifest));
  const Json manifest = Json::parse(read_file(path, kMaxJson), path.string());
  const Json *format = manifest.is_object() ? manifest.find("format") : nullptr,
             *version = manifest.is_object() ? manifest.find("version") : nullptr,
             *step = manifest.is_object() ? manifest.find("step") : nullptr,
             *files = manifest.is_object() ? manifest.find("files") : nullptr;
  if (!format || *format != Json(kFormat) || !version) fail_torn(checkpoint, fmt::format("{} is not one", kManifest));
  if (*version != Json(kVersion)) {
    fail(ErrorCode::kUnavailable, "{}: version {}, but this program reads version {}", path.string(), version->dump(),
         kVersion);
  }
  if (!step || !step->is_int() || !files || !files->is_object()) {
    fail_torn(checkpoint, fmt::format("{} is not one", kManifest));
  }
  if (files->find(kState) == nullptr) fail_torn(checkpoint, fmt::format("{} does not name {}", kManifest, kState));
  for (const auto& [name, expected] : files->as_object()) verify_file(checkpoint, name, expected, deep);
  if (const int64_t named = step_of(checkpoint.filename().string()); named >= 0 && named != step->as_int()) {
    fail(ErrorCode::kInvalidArgument, "{}: step {}, but the directory is named {}", path.string(), step->as_int(),
         checkpoint.filename().string());
  }
  return step->as_int();
}

// What cannot be told (another version, a failed read) is kept, but does not count.
enum class Condition { complete, torn, unknown };

Condition condition_of(const Path& checkpoint) {
  try {
    verify_checkpoint(checkpoint, false);
    return Condition::complete;
  } catch (const Error& error) {
    return error.code() == ErrorCode::kBadFormat ? Condition::torn : Condition::unknown;
  }
}

}  // namespace

CheckpointStore::CheckpointStore(Path directory) : directory_(std::move(directory)) {}

Path CheckpointStore::save(int64_t step, const std::vector<CheckpointFile>& files, const Json& state,
                           const KeepPolicy& keep) {
  LOAM_CHECK(step >= 0, "checkpoint: step {} is negative", step);
  clean();
  const Path path = directory_ / directory_name(step);
  AtomicDirectory building(path, true);
  Json::Object manifest_files;
  for (const CheckpointFile& file : files) {
    const std::string name = file.name + ".safetensors";
    write_safetensors(building.path() / name, file.tensors);
    manifest_files.emplace_back(name, describe_file(building.path() / name));
  }
  write_file_atomic(building.path() / kState, state.dump(2) + "\n");
  manifest_files.emplace_back(kState, describe_file(building.path() / kState));
  const Json manifest =
      Json::Object{{"format", kFormat}, {"version", kVersion}, {"step", step}, {"files", std::move(manifest_files)}};
  write_file_atomic(building.path() / kManifest, manifest.dump(2) + "\n");
  building.commit();
  prune(step, keep);
  return path;
}

void CheckpointStore::prune(int64_t step, const KeepPolicy& keep) const {
  if (keep.last <= 0) return;
  auto checkpoints = list();
  std::reverse(checkpoints.begin(), checkpoints.end());
  std::vector<Path> doomed;  // newest first
  int64_t kept = 0;
  for (const CheckpointInfo& info : checkpoints) {
    if (info.step > step) continue;
    const Condition condition = condition_of(info.path);
    if (condition == Condition::unknown) continue;
    const bool complete = condition == Condition::complete;
    const bool named = std::count(keep.steps.begin(), keep.steps.end(), info.step) > 0 ||
                       (keep.every > 0 && info.step % keep.every == 0);
    if (!complete || (kept >= keep.last && !named)) doomed.push_back(info.path);
    if (complete) ++kept;
  }
  // A kill in between leaves no gap in what stays.
  for (auto path = doomed.rbegin(); path != doomed.rend(); ++path) remove_checkpoint(*path);
}

std::vector<CheckpointInfo> CheckpointStore::list() const {
  std::vector<CheckpointInfo> checkpoints;
  for (const Path& path : entries_of(directory_)) {
    std::error_code ignored;
    const int64_t step = step_of(path.filename().string());
    if (step >= 0 && fs::is_directory(path, ignored)) checkpoints.push_back({path, step});
  }
  std::sort(checkpoints.begin(), checkpoints.end(),
            [](const auto& a, const auto& b) { return std::pair(a.step, a.path) < std::pair(b.step, b.path); });
  return checkpoints;
}

std::optional<VerifiedCheckpoint> CheckpointStore::newest_complete() const {
  auto checkpoints = list();
  std::reverse(checkpoints.begin(), checkpoints.end());
  for (const CheckpointInfo& info : checkpoints) {
    try {
      return VerifiedCheckpoint(info.path);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadFormat) throw;
      log_warn("{}; skipped", error.what());
    }
  }
  return std::nullopt;
}

void CheckpointStore::clean() const {
  for (const Path& path : entries_of(directory_)) {
    const std::string name = path.filename().string();
    if (!is_leftover(name)) continue;
    // Where directories cannot be swapped, replacing one moves it away first: a kill just then leaves the only copy.
    const Path original = directory_ / name.substr(1, name.find('.', 1) - 1);
    std::error_code ignored;
    if (name.find(".old-") != name.npos && !fs::exists(original, ignored) && condition_of(path) != Condition::torn) {
      fs::rename(path, original, ignored);
    } else {
      fs::remove_all(path, ignored);
    }
  }
}

VerifiedCheckpoint::VerifiedCheckpoint(const Path& checkpoint)
    : CheckpointInfo{checkpoint, verify_checkpoint(checkpoint, true)} {}

Json read_checkpoint_state(const Path& checkpoint) {
  const Path path = checkpoint / kState;
  return Json::parse(read_file(path, kMaxJson), path.string());
}

}  // namespace loam
