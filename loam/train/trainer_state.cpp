#include "loam/train/trainer_state.h"

#include <algorithm>
#include <array>

#include "loam/base/log.h"
#include "loam/format/safetensors.h"
#include "loam/kernels/matmul.h"

namespace loam {
namespace {

constexpr const char* kModelFile = "model";
constexpr const char* kOptimizerFile = "optimizer";
constexpr int64_t kStateVersion = 1;

// Settings that say what is logged, kept, scored or shown: the weights do not depend on them. The data's path may
// change because their fingerprint may not.
constexpr std::array kBookKeeping = {"data.path", "log_every",    "val_every",     "val_rows",     "save_every",
                                     "keep_last", "sample_every", "sample_prompt", "sample_tokens"};

bool may_change(const std::string& difference, const TrainConfig& config) {
  const std::string name = difference.substr(0, difference.find(':'));
  const ScheduleKind schedule = config.optimizer.schedule;
  if (name == "steps") return schedule == ScheduleKind::constant || schedule == ScheduleKind::inverse_sqrt;
  return std::find(kBookKeeping.begin(), kBookKeeping.end(), name) != kBookKeeping.end();
}

std::string kind_name(OptimizerKind kind) { return config_detail::to_json(kind).as_string(); }

// A setting that is younger than the checkpoint had its default then.
void check_config(const Path& checkpoint, const Json& stored, const TrainConfig& config, bool allow_changed) {
  TrainConfig before;
  try {
    config_from_json(before, stored);
  } catch (const Error& error) {
    fail(ErrorCode::kBadFormat, "{}: its configuration: {}", checkpoint.string(), error.what());
  }
  if (before.optimizer.kind != config.optimizer.kind) {
    fail(ErrorCode::kInvalidArgument, "{}: was trained with {}, whose state {} cannot go on from; --init-from starts anew with its model",
         checkpoint.string(), kind_name(before.optimizer.kind), kind_name(config.optimizer.kind));
  }
  std::string list;
  for (const std::string& difference : config_diff(config_to_json(before), config_to_json(config))) {
    if (!may_change(difference, config)) list += (list.empty() ? " " : "; ") + difference;
  }
  if (list.empty()) return;
  if (!allow_changed) {
    fail(ErrorCode::kInvalidArgument,
         "{}: was written with another configuration (--allow-changed-config continues with the new one):{}",
         checkpoint.string(), list);
  }
  log_warn("resuming with a changed configuration:{}", list);
}

Json data_json(const TokenSet& train, const TokenSet* val) {
  Json data = Json::object();
  data["train"] = train.fingerprint();
  data["val"] = val ? Json(val->fingerprint()) : Json();
  data["tokenizer"] = train.info().tokenizer_fingerprint;
  return data;
}

// state.json of a checkpoint.
struct StoredState {
  int64_t step = 0, updates = 0, samples = 0, threads = 0;
  Json config, data, extra;
};

StoredState read_state(const Path& checkpoint) {
  const Json json = read_checkpoint_state(checkpoint);
  try {
    StoredState state;
    if (const int64_t version = json.at("version").as_int(); version != kStateVersion) {
      fail(ErrorCode::kBadFormat, "state of version {}; this program reads version {}", version, kStateVersion);
    }
    state.step = json.at("step").as_int();
    constexpr int64_t kMaxStep = int64_t{1} << 38;  // times a batch, still a count
    if (state.step < 0 || state.step > kMaxStep) fail(ErrorCode::kBadFormat, "step is {}", state.step);
    const Json* updates = json.find("updates");  // younger than the format
    state.updates = updates ? updates->as_int() : state.step;
    if (state.updates < 0 || state.updates > state.step) fail(ErrorCode::kBadFormat, "updates is {}", state.updates);
    state.samples = json.at("samples").as_int();
    state.threads = json.at("threads").as_int();
    state.config = json.at("config");
    state.data = json.at("data");
    state.extra = json.at("extra");
    return state;
  } catch (const Error& error) {
    fail(ErrorCode::kBadFormat, "{}: state.json: {}", checkpoint.string(), error.what());
  }
}

// That of a checkpoint which a run may go on from.
StoredState checked_state(const VerifiedCheckpoint& checkpoint, const TrainConfig& config, const TokenSet& train,
                          const TokenSet* val, bool allow_changed_config) {
  const std::string name = checkpoint.path.string();
  StoredState state = read_state(checkpoint.path);
  if (state.step != checkpoint.step) {
    fail(ErrorCode::kBadFormat, "{}: state.json: step {}, but the manifest says {}", name, state.step, checkpoint.step);
  }
  check_config(checkpoint.path, state.config, config, allow_changed_config);
  LOAM_CHECK(state.samples == state.step * config.batch,
             "{}: batch has changed: {} samples were taken in {} steps, which no step of {} rows continues", name,
             state.samples, state.step, config.batch);
  for (const std::string& what : config_diff(state.data, data_json(train, val))) {
    // Validation data change no weight, but the loss curve would change its meaning unseen.
    fail(ErrorCode::kInvalidArgument, "{}: the data are not those of the run (fingerprint of {})", name, what);
  }
  return state;
}

// A tensor of a checkpoint file, in the shape it must have.
Tensor checked_tensor(const SafetensorsFile& file, const std::string& name, const Shape& shape) {
  const Tensor tensor = file.tensor(name);
  if (tensor.dtype() != DType::f32 || tensor.shape() != shape) {
    fail(ErrorCode::kBadFormat, "{}: {} is {} {}, the model has f32 {}", file.path().string(), name,
         dtype_name(tensor.dtype()), tensor.shape().str(), shape.str());
  }
  return tensor;
}

void copy_values(const Tensor& from, const Tensor& to) {
  const auto source = from.span<float>();
  std::copy(source.begin(), source.end(), to.data<float>());
}

Tensor part_of_run(const Tensor& run, const OptimizerGroups::Place& place, const ParamSpec& spec) {
  return run.narrow(0, place.begin, spec.shape.product()).reshape(spec.shape);
}

}  // namespace

Tensor Trainer::State::master(int32_t index) const {
  const OptimizerGroups::Place& place = places[static_cast<size_t>(index)];
  if (place.group < 0) return model.weights->value(index);
  return part_of_run(optimizer->master(static_cast<size_t>(place.group)), place, model.weights->spec(index));
}

std::vector<std::pair<std::string, Tensor>> Trainer::State::kept(int32_t index) const {
  const OptimizerGroups::Place& place = places[static_cast<size_t>(index)];
  if (place.group < 0) return {};
  const auto group = static_cast<size_t>(place.group);
  const ParamSpec& spec = model.weights->spec(index);
  std::vector<std::pair<std::string, Tensor>> parts;
  for (size_t i = 0; i < optimizer->state(group).size(); ++i) {
    parts.emplace_back(optimizer->state_names(group)[i] + "." + spec.name,
                       part_of_run(optimizer->state(group)[i], place, spec));
  }
  return parts;
}

Path Trainer::save(CheckpointStore& store, const Json& extra) {
  const State& s = *state_;
  CheckpointFile model{kModelFile, {}}, optimizer{kOptimizerFile, {}};
  for (int32_t i = 0; i < s.model.weights->size(); ++i) {
    const std::string& name = s.model.weights->name(i);
    model.tensors.emplace_back(name, s.master(i));
    for (auto& tensor : s.kept(i)) optimizer.tensors.push_back(std::move(tensor));
  }
  Json state = Json::object();
  state["version"] = kStateVersion;
  state["step"] = s.steps_done;
  state["updates"] = s.updates;
  state["samples"] = s.steps_done * s.config.batch;
  state["seed"] = s.config.seed;
  state["threads"] = s.ctx.threads;
  state["data"] = data_json(*s.train, s.val.get());
  state["config"] = config_to_json(s.config);
  state["extra"] = extra;
  return store.save(s.steps_done, {model, optimizer}, state, s.config.keep_last);
}

void Trainer::check_checkpoint(const VerifiedCheckpoint& checkpoint, const TrainConfig& config, const TokenSet& train,
                               const TokenSet* val, bool allow_changed_config) {
  checked_state(checkpoint, config, train, val, allow_changed_config);
}

Json Trainer::load(const VerifiedCheckpoint& verified, bool allow_changed_config) {
  State& s = *state_;
  const Path& checkpoint = verified.path;
  const StoredState state = checked_state(verified, s.config, *s.train, s.val.get(), allow_changed_config);
  const DType compute_type = s.config.dtype == ComputeDtype::bf16 ? DType::bf16 : DType::f32;
  if (state.threads != s.ctx.threads && matmul_depends_on_threads(s.ctx.numerics, compute_type)) {
    log_warn("the run used {} threads, now {}: from here on it is equal within rounding, not bit for bit",
             state.threads, s.ctx.threads);
  }

  // Everything is looked at before anything is changed.
  const SafetensorsFile model(checkpoint / (std::string(kModelFile) + ".safetensors"));
  const SafetensorsFile optimizer(checkpoint / (std::string(kOptimizerFile) + ".safetensors"));
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (int32_t i = 0; i < s.model.weights->size(); ++i) {
    const std::string& name = s.model.weights->name(i);
    const Shape& shape = s.model.weights->spec(i).shape;
    copies.emplace_back(checked_tensor(model, name, shape), s.master(i));
    for (const auto& [kept_name, kept] : s.kept(i)) {
      copies.emplace_back(checked_tensor(optimizer, kept_name, shape), kept);
    }
  }
  for (const auto& [from, to] : copies) copy_values(from, to);
  s.optimizer->masters_to_weights(s.ctx);
  s.model.weights->mark_changed();
  s.steps_done = state.step;
  s.updates = state.updates;
  return state.extra;
}

void Trainer::export_model(const Path& directory) {
  State& s = *state_;
  SaveModelOptions options;
  // In the compute dtype, so that the file gives the logits that training saw.
  options.dtype = s.config.dtype == ComputeDtype::bf16 ? DType::bf16 : DType::f32;
  save_model(
      s.ctx, s.model, [&](int32_t index) { return s.master(index); }, directory, options);
}

}  // namespace loam
