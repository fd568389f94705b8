#include "loam/train/run_origin.h"

#include <algorithm>
#include <fstream>

#include "loam/base/hash.h"
#include "loam/format/checkpoint.h"
#include "loam/model/config_file.h"
#include "loam/model/families/family.h"
#include "loam/optim/schedule.h"
#include "loam/train/run_directory.h"
#include "loam/train/run_summary.h"

namespace loam {
namespace {

constexpr int64_t kLargestFile = int64_t{1} << 26;

std::string place_of(const Path& path) {
  std::error_code error;
  const Path found = std::filesystem::weakly_canonical(path, error);
  return (error ? path : found).string();
}

uint64_t hash_of_file(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  StreamHash64 hash;
  std::string block(size_t{1} << 20, '\0');
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    hash.update({block.data(), static_cast<size_t>(file.gcount())});
  }
  if (!file.eof()) fail(ErrorCode::kIo, "{}: cannot be read", path.string());
  return hash.digest();
}

// Says what is in a checkpoint, whose manifest has the hashes of its files; "" if it is not there.
std::string id_of_checkpoint(const Path& directory) {
  const Path file = directory / "MANIFEST.json";
  return std::filesystem::exists(file) ? hash_hex(read_file(file, kLargestFile)) : "";
}

// Says what is in a MODEL directory, its weights too; "" if it is not there.
std::string id_of_model(const Path& directory) {
  if (!std::filesystem::exists(directory / "config.json")) return "";
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string all = read_file(directory / "config.json", kLargestFile);
  for (const Path& file : files) all += fmt::format("\n{} {:016x}", file.filename().string(), hash_of_file(file));
  return hash_hex(all);
}

std::string text_at(const Json& json, const char* key) {
  const Json* found = json.find(key);
  return found && found->is_string() ? found->as_string() : "";
}

}  // namespace

TrainConfig checkpoint_config(const Path& checkpoint) {
  TrainConfig config;
  const Json state = read_checkpoint_state(checkpoint);
  try {
    config_from_json(config, state.at("config"));
  } catch (const Error& error) {
    fail(ErrorCode::kBadFormat, "{}: its configuration: {}", checkpoint.string(), error.what());
  }
  return config;
}

Json origin_of(const RunOptions& options) {
  if (!options.branch && !options.init_from) return {};
  Json origin = Json::object();
  if (options.branch) {
    origin["branch"] = place_of(*options.branch);
    origin["id"] = id_of_checkpoint(*options.branch);
    const Json state = read_checkpoint_state(*options.branch), *extra = state.find("extra");
    const Json* before = extra && extra->is_object() ? extra->find("origin") : nullptr;
    const Json* family = before && before->is_object() ? before->find("family") : nullptr;
    if (family) origin["family"] = *family;
  } else {
    origin["init_from"] = place_of(*options.init_from);
    origin["id"] = id_of_model(*options.init_from);
    origin["family"] = read_model_config(*options.init_from).family->name;
  }
  return origin;
}

namespace {

// What a run says that it began with, under the `kind` of it; "" for nothing.
std::string place_of_origin(const Path& checkpoint, const char* kind) {
  const Json state = read_checkpoint_state(checkpoint), *extra = state.find("extra");
  const Json* origin = extra && extra->is_object() ? extra->find("origin") : nullptr;
  return origin && origin->is_object() ? text_at(*origin, kind) : "";
}

Path checkpoint_of_run(const Path& checkpoints, const RunOptions& options) {
  if (!options.out.empty() && options.resume == RunOptions::Resume::automatic) {
    const auto own = CheckpointStore(options.out / "checkpoints").newest_complete();
    const Path began = own ? place_of_origin(own->path, "branch") : "";
    if (lies_in(began, checkpoints)) return began;
  }
  const auto newest = CheckpointStore(checkpoints).newest_complete();
  if (!newest) fail(ErrorCode::kNotFound, "{}: there is no complete checkpoint", checkpoints.string());
  return newest->path;
}

}  // namespace

void settle_origin(RunOptions& options) {
  if (options.branch && is_run(*options.branch)) {
    options.branch = checkpoint_of_run(*options.branch / "checkpoints", options);
  }
  if (options.init_from && is_run(*options.init_from)) {
    const Path model = *options.init_from / "model";
    if (!std::filesystem::exists(model / "config.json")) {
      fail(ErrorCode::kNotFound, "{}: the run has no model yet", options.init_from->string());
    }
    options.init_from = model;
  }
}

bool has_origin(const Path& checkpoint, const RunOptions& options) {
  if (!options.branch && !options.init_from) return true;
  const Json state = read_checkpoint_state(checkpoint);
  const Json* extra = state.find("extra");
  const Json* found = extra && extra->is_object() ? extra->find("origin") : nullptr;
  if (!found || !found->is_object()) return false;
  const char* kind = options.branch ? "branch" : "init_from";
  const Path& path = options.branch ? *options.branch : *options.init_from;
  if (!found->find(kind)) return false;
  const std::string id = options.branch ? id_of_checkpoint(path) : id_of_model(path), known = text_at(*found, "id");
  if (!id.empty() && !known.empty()) return id == known;
  return text_at(*found, kind) == place_of(path);
}

std::optional<Path> newest_with_origin(const RunOptions& options) {
  if (options.out.empty() || options.resume == RunOptions::Resume::never) return {};
  const auto newest = CheckpointStore(options.out / "checkpoints").newest_complete();
  if (!newest || !has_origin(newest->path, options)) return {};
  return newest->path;
}

TrainConfig origin_config(const RunOptions& options, TrainConfig config, const std::optional<Path>& goes_on) {
  if (options.branch) {
    config = checkpoint_config(goes_on ? *goes_on : *options.branch);
    if (!goes_on) config.steps = config.optimizer.decay_steps = 0;
  } else if (options.init_from) {
    config.model = goes_on ? checkpoint_config(*goes_on).model : read_model_config(*options.init_from).config;
  }
  return config;
}

namespace {

// The rate may fall at the branch's step, but not jump up: from a decayed state that is neither the run that was
// meant nor a warm-up.
void check_rate(const TrainConfig& parent, const TrainConfig& config, int64_t step) {
  OptimizerConfig optimizer = config.optimizer;
  optimizer.lr = parent.optimizer.lr;  // whether that may change is not said here
  const auto before = [&](int64_t at) { return learning_rate(parent.optimizer, at, parent.steps); };
  const double rate = learning_rate(optimizer, step, config.steps), limit = rate * (1 - 1e-9);
  if (before(step) >= limit) return;
  // Behind the warm-up no schedule rises.
  int64_t last = std::min(parent.optimizer.warmup_steps, step), after = step;
  const bool has_stable = before(last) >= limit;
  while (after - last > 1) {
    const int64_t middle = last + (after - last) / 2;
    (before(middle) >= limit ? last : after) = middle;
  }
  fail(ErrorCode::kInvalidArgument,
       "at the branch's step {} the run had a learning rate of {:.6g}, and the branch would begin with {:.6g}{}", step,
       before(step), rate, has_stable ? fmt::format("; the last step with that rate is {}", last) : "");
}

}  // namespace

void settle_branch(const Path& checkpoint, TrainConfig& config) {
  const int64_t step = read_checkpoint_state(checkpoint).at("step").as_int();
  const bool decays = config.optimizer.schedule == ScheduleKind::wsd;
  int64_t& length = config.optimizer.decay_steps;
  LOAM_CHECK(length == 0 || decays, "optimizer.decay_steps needs optimizer.schedule wsd, and the branch has {}",
             config_detail::to_json(config.optimizer.schedule).as_string());
  LOAM_CHECK(config.steps > 0 || length > 0,
             "a branch at step {} needs optimizer.decay_steps, or steps beyond {}: how far it goes", step, step);
  if (config.steps == 0) config.steps = step + length;
  LOAM_CHECK(config.steps > step, "steps ({}) is not beyond the branch's step ({})", config.steps, step);
  if (decays && length == 0) length = config.steps - step;
  LOAM_CHECK(length <= config.steps - step, "optimizer.decay_steps ({}) reaches back behind the branch's step ({})",
             length, step);
  check_rate(checkpoint_config(checkpoint), config, step);
}

}  // namespace loam
