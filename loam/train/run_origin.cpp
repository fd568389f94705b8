#include "loam/train/run_origin.h"

#include "loam/base/hash.h"
#include "loam/format/checkpoint.h"
#include "loam/model/config_file.h"
#include "loam/model/families/family.h"

namespace loam {
namespace {

constexpr int64_t kLargestFile = int64_t{1} << 26;

std::string place_of(const Path& path) {
  std::error_code error;
  const Path found = std::filesystem::weakly_canonical(path, error);
  return (error ? path : found).string();
}

// Says what is in a checkpoint or a MODEL directory without reading its weights; "" if it is not there.
std::string id_of(const Path& file) {
  if (!std::filesystem::exists(file)) return "";
  return hash_hex(read_file(file, kLargestFile));
}

bool same_text(const Json& a, const Json& b, const char* key) {
  const Json *left = a.find(key), *right = b.find(key);
  return left && right && left->is_string() && *left == *right && !left->as_string().empty();
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
    origin["id"] = id_of(*options.branch / "MANIFEST.json");
    const Json state = read_checkpoint_state(*options.branch), *extra = state.find("extra");
    const Json* before = extra && extra->is_object() ? extra->find("origin") : nullptr;
    const Json* family = before && before->is_object() ? before->find("family") : nullptr;
    if (family) origin["family"] = *family;
  } else {
    origin["init_from"] = place_of(*options.init_from);
    origin["id"] = id_of(*options.init_from / "config.json");
    origin["family"] = read_model_config(*options.init_from).family->name;
  }
  return origin;
}

bool has_origin(const Path& checkpoint, const RunOptions& options) {
  if (!options.branch && !options.init_from) return true;
  const Json state = read_checkpoint_state(checkpoint);
  const Json* extra = state.find("extra");
  const Json* found = extra && extra->is_object() ? extra->find("origin") : nullptr;
  if (!found || !found->is_object()) return false;
  const char* kind = options.branch ? "branch" : "init_from";
  const Path& path = options.branch ? *options.branch : *options.init_from;
  Json wanted = Json::object();
  wanted[kind] = place_of(path);
  wanted["id"] = id_of(path / (options.branch ? "MANIFEST.json" : "config.json"));
  return found->find(kind) && (same_text(*found, wanted, kind) || same_text(*found, wanted, "id"));
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
}

}  // namespace loam
