#include "loam/train/trainer_state.h"

#include <algorithm>
#include <array>
#include <limits>

#include "loam/base/log.h"
#include "loam/format/safetensors.h"
#include "loam/kernels/matmul.h"
#include "loam/kernels/optimizer.h"
#include "loam/train/run_data.h"

namespace loam {
namespace {

constexpr const char* kModelFile = "model";
constexpr const char* kOptimizerFile = "optimizer";
constexpr int64_t kStateVersion = 1;

// Settings that say what is logged, kept, scored, shown or computed again: the weights do not depend on them. The
// data's path may change because their fingerprint may not.
constexpr std::array kBookKeeping = {
    "data.path",   "log_every",     "val_every",      "val_rows",         "save_every",    "keep_last",
    "keep_every",  "keep_best",     "sample_every",   "sample_prompt",    "sample_tokens", "detail_every",
    "price.watts", "price.per_kwh", "price.per_hour", "recompute.groups", "recompute.part"};

bool acts_on_spikes(const TrainConfig& config) {
  return config.spikes.action == SpikeAction::skip || config.spikes.action == SpikeAction::rewind;
}

// What a branch may change: how far it goes, and how the rate falls.
constexpr std::array kScheduleShape = {"optimizer.schedule",    "optimizer.min_lr_ratio", "optimizer.decay_fraction",
                                       "optimizer.decay_steps", "optimizer.decay_until",  "optimizer.decay_shape"};

bool may_change(const std::string& difference, const TrainConfig& before, const TrainConfig& config, bool branches) {
  std::string name = difference.substr(0, difference.find(':'));
  if (name.starts_with("data.") && name.ends_with("].path")) name = "data.path";  // of a source or validation set
  if (name.starts_with("spikes.")) return !acts_on_spikes(before) && !acts_on_spikes(config);
  const ScheduleKind schedule = config.optimizer.schedule;
  // The rate does not depend on the steps.
  const bool endless = schedule == ScheduleKind::constant || schedule == ScheduleKind::inverse_sqrt ||
                       (schedule != ScheduleKind::wsd && config.optimizer.decay_until > 0);
  // Stages begin at shares of the steps.
  if (name == "steps") return branches || (endless && config.data.stages.size() < 2);
  if (branches && std::find(kScheduleShape.begin(), kScheduleShape.end(), name) != kScheduleShape.end()) return true;
  return std::find(kBookKeeping.begin(), kBookKeeping.end(), name) != kBookKeeping.end();
}

std::string kind_name(OptimizerKind kind) { return config_detail::to_json(kind).as_string(); }

// Gives that of the checkpoint. A setting that is younger than it had its default then.
TrainConfig check_config(const Path& checkpoint, const Json& stored, const TrainConfig& config, bool allow_changed,
                         bool branches) {
  TrainConfig before;
  try {
    config_from_json(before, stored);
  } catch (const Error& error) {
    fail(ErrorCode::kBadFormat, "{}: its configuration: {}", checkpoint.string(), error.what());
  }
  if (before.optimizer.kind != config.optimizer.kind) {
    fail(ErrorCode::kInvalidArgument,
         "{}: was trained with {}, whose state {} cannot go on from; --init-from starts anew with its model",
         checkpoint.string(), kind_name(before.optimizer.kind), kind_name(config.optimizer.kind));
  }
  if (const std::string other = other_kind(before.optimizer, config); !other.empty()) {
    fail(ErrorCode::kInvalidArgument, "{}: {}; --init-from starts anew with its model", checkpoint.string(), other);
  }
  std::string list;
  for (const std::string& difference : config_diff(config_to_json(before), config_to_json(config))) {
    if (!may_change(difference, before, config, branches)) list += (list.empty() ? " " : "; ") + difference;
  }
  if (list.empty()) return before;
  if (!allow_changed) {
    fail(ErrorCode::kInvalidArgument,
         "{}: was written with another configuration (--allow-changed-config continues with the new one):{}",
         checkpoint.string(), list);
  }
  log_warn("resuming with a changed configuration:{}", list);
  return before;
}

constexpr int64_t kMaxStep = int64_t{1} << 38;  // times a batch, still a count

// state.json of a checkpoint.
struct StoredState {
  int64_t step = 0, updates = 0, samples = 0, threads = 0;
  float loss_scale = 1;    // kFirstLossScale if it has none
  int32_t good_steps = 0;  // with it
  Json config, data, extra;
  BatchOrder order;
  Json spikes, rewinds = Json::array();  // spikes: null if it has none
  std::optional<RunMixture> sources;     // none if it has none
};

// Of a checkpoint under fp16.
void read_loss_scale(const Json& json, StoredState& state) {
  state.loss_scale = kFirstLossScale;
  const Json* stored = json.find("loss_scale");
  if (!stored) return;
  const double scale = stored->at("scale").as_double();
  const int64_t good_steps = stored->at("good_steps").as_int();
  if (!(scale >= kLeastLossScale && scale <= std::numeric_limits<float>::max()) || good_steps < 0 ||
      good_steps >= kGrowthInterval)
    fail(ErrorCode::kBadFormat, "loss_scale is {}", stored->dump());
  state.loss_scale = static_cast<float>(scale);
  state.good_steps = static_cast<int32_t>(good_steps);
}

StoredState read_state(const Path& checkpoint) {
  const Json json = read_checkpoint_state(checkpoint);
  try {
    StoredState state;
    if (const int64_t version = json.at("version").as_int(); version != kStateVersion) {
      fail(ErrorCode::kBadFormat, "state of version {}; this program reads version {}", version, kStateVersion);
    }
    state.step = json.at("step").as_int();
    if (state.step < 0 || state.step > kMaxStep) fail(ErrorCode::kBadFormat, "step is {}", state.step);
    const Json* updates = json.find("updates");  // younger than the format
    state.updates = updates ? updates->as_int() : state.step;
    if (state.updates < 0 || state.updates > state.step) fail(ErrorCode::kBadFormat, "updates is {}", state.updates);
    read_loss_scale(json, state);
    state.samples = json.at("samples").as_int();
    state.threads = json.at("threads").as_int();
    state.config = json.at("config");
    state.data = json.at("data");
    state.extra = json.at("extra");
    // Younger than the format.
    if (const Json* left_out = json.find("left_out")) state.order.from_json(*left_out);
    if (const Json* spikes = json.find("spikes")) {
      SpikeDetector({}).from_json(*spikes);
      state.spikes = *spikes;
    }
    if (const Json* mixture = json.find("mixture")) state.sources.emplace(*mixture, state.samples);
    if (const Json* rewinds = json.find("rewinds")) state.rewinds = rewinds->as_array();
    return state;
  } catch (const Error& error) {
    fail(ErrorCode::kBadFormat, "{}: state.json: {}", checkpoint.string(), error.what());
  }
}

// Names and fingerprints of a checkpoint's validation sets.
std::vector<std::pair<std::string, std::string>> val_sets(const Json& data) {
  std::vector<std::pair<std::string, std::string>> sets;
  const Json* found = data.is_object() ? data.find("val") : nullptr;
  if (found && found->is_string()) sets.emplace_back(kOnlySet, found->as_string());
  if (!found || !found->is_object()) return sets;
  for (const auto& [name, fingerprint] : found->as_object()) {
    sets.emplace_back(name, fingerprint.is_string() ? fingerprint.as_string() : "");
  }
  return sets;
}

// Why a run cannot go on with the data, of the fingerprints `found`, if not for sources or validation sets more or
// fewer; "" if for nothing else.
std::string other_data(const Json& stored, const RunMixture& sources, const Json& found, const TrainingData& data) {
  const Json* tokenizer = stored.is_object() ? stored.find("tokenizer") : nullptr;
  if (!tokenizer || *tokenizer != found.at("tokenizer")) return "tokenizer";
  if (const std::string name = sources.other_source(data); !name.empty()) {
    return name == kOnlySource ? name : "train." + name;
  }
  for (const auto& [name, fingerprint] : val_sets(stored)) {
    for (const auto& [other_name, other] : val_sets(found)) {
      if (name == other_name && fingerprint != other) return "val." + name;
    }
  }
  return "";
}

void check_data(const std::string& checkpoint, const StoredState& state, const TrainingData& data, bool allow_changed) {
  const Json found = fingerprints_of(data);
  const std::vector<std::string> differences = config_diff(state.data, found);
  const std::string other = other_data(state.data, *state.sources, found, data);
  if (other.empty() && (differences.empty() || allow_changed)) return;
  std::string remedy;
  if (other.empty()) remedy = "; --allow-changed-config takes them";
  if (other == kOnlySource)
    remedy = "; other data need a name of their own in data.sources, and --allow-changed-config";
  if (other.find('.') != other.npos) remedy = "; other data need a new name, and --allow-changed-config";
  // Validation data change no weight, but the loss curve would change its meaning unseen.
  fail(ErrorCode::kInvalidArgument, "{}: the data are not those of the run (fingerprint of {}){}", checkpoint,
       other.empty() ? differences[0] : other, remedy);
}

// That of a checkpoint which a run may go on from, with its sources as they go on.
StoredState checked_state(const VerifiedCheckpoint& checkpoint, const TrainConfig& config, const TrainingData& data,
                          bool allow_changed_config, bool branches) {
  const std::string name = checkpoint.path.string();
  StoredState state = read_state(checkpoint.path);
  if (state.step != checkpoint.step) {
    fail(ErrorCode::kBadFormat, "{}: state.json: step {}, but the manifest says {}", name, state.step, checkpoint.step);
  }
  const TrainConfig before = check_config(checkpoint.path, state.config, config, allow_changed_config, branches);
  LOAM_CHECK(state.samples == state.order.batch_after(state.step) * config.batch,
             "{}: batch has changed: {} samples were taken in {} steps, which no step of {} rows continues", name,
             state.samples, state.step, config.batch);
  const auto named = [&](const auto& act) {
    try {
      act();
    } catch (const Error& error) {
      fail(ErrorCode::kBadFormat, "{}: state.json: {}", name, error.what());
    }
  };
  named([&] {
    constexpr int64_t kMaxBatch = int64_t{1} << 24;
    if (before.steps < 0 || before.steps > kMaxStep || before.batch < 1 || before.batch > kMaxBatch)
      fail(ErrorCode::kBadFormat, "{} steps of {} rows", before.steps, before.batch);
    if (!state.sources) state.sources.emplace(before, state.data, state.order, state.samples);
  });
  check_data(name, state, data, allow_changed_config);
  named([&] { state.sources->go_on(before, state.samples, config, data); });
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

Path Trainer::save(CheckpointStore& store, const Json& extra, const std::vector<int64_t>& kept) {
  const State& s = *state_;
  LOAM_CHECK(s.launched.empty(), "trainer: a save while {} steps are under way", s.launched.size());
  CheckpointFile model{kModelFile, {}}, optimizer{kOptimizerFile, {}};
  for (int32_t i = 0; i < s.model.weights->size(); ++i) {
    const std::string& name = s.model.weights->name(i);
    model.tensors.emplace_back(name, s.master(i));
    for (auto& tensor : s.kept(i)) optimizer.tensors.push_back(std::move(tensor));
  }
  Json state = Json::object();
  state["version"] = kStateVersion;
  state["step"] = s.steps_done;
  state["updates"] = s.step_state.updates;
  if (s.scales_loss())
    state["loss_scale"] = Json::Object{{"scale", static_cast<double>(s.step_state.loss_scale)},
                                       {"good_steps", int64_t{s.step_state.good_steps}}};
  state["samples"] = s.order.batch_after(s.steps_done) * s.config.batch;
  state["left_out"] = s.order.to_json();
  state["spikes"] = s.spikes.to_json();
  state["rewinds"] = s.rewinds;
  state["seed"] = s.config.seed;
  state["threads"] = s.ctx.threads;
  state["data"] = fingerprints_of(s.data);
  state["mixture"] = s.sources->to_json();
  state["config"] = config_to_json(s.config);
  state["extra"] = extra;
  return store.save(s.steps_done, {model, optimizer}, state, {s.config.keep_last, s.config.keep_every, kept});
}

void Trainer::State::set_sources(RunMixture run_sources) {
  mixture->begin(mixture_stages(config), run_sources.start(config, data));
  sources = std::move(run_sources);
}

Mixture Trainer::check_checkpoint(const VerifiedCheckpoint& checkpoint, const TrainConfig& config,
                                  const TrainingData& data, bool allow_changed_config, bool branches) {
  const StoredState state = checked_state(checkpoint, config, data, allow_changed_config, branches);
  return make_mixture(config, data, state.sources->start(config, data));
}

Json Trainer::load(const VerifiedCheckpoint& verified, bool allow_changed_config, bool branches) {
  State& s = *state_;
  const Path& checkpoint = verified.path;
  const StoredState state = checked_state(verified, s.config, s.data, allow_changed_config, branches);
  if (state.threads != s.ctx.threads && matmul_depends_on_threads(s.ctx.numerics, storage_dtype(s.config.dtype))) {
    log_warn("the run used {} threads, now {}: from here on it is equal within rounding, not bit for bit",
             state.threads, s.ctx.threads);
  }

  // Everything is looked at before anything is changed.
  const SafetensorsFile model(checkpoint / fmt::format("{}.safetensors", kModelFile));
  const SafetensorsFile optimizer(checkpoint / fmt::format("{}.safetensors", kOptimizerFile));
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (int32_t i = 0; i < s.model.weights->size(); ++i) {
    const std::string& name = s.model.weights->name(i);
    const Shape& shape = s.model.weights->spec(i).shape;
    copies.emplace_back(checked_tensor(model, name, shape), s.master(i));
    for (const auto& [kept_name, kept] : s.kept(i)) {
      copies.emplace_back(checked_tensor(optimizer, kept_name, shape), kept);
    }
  }
  for (auto& [from, to] : copies) to.copy_from(from);
  s.optimizer->masters_to_weights(s.ctx);
  s.model.weights->mark_changed();
  s.steps_done = state.step;
  s.launched.clear();
  s.step_state.updates = state.updates;
  if (s.scales_loss()) {
    s.step_state.loss_scale = state.loss_scale;
    s.step_state.good_steps = state.good_steps;
  }
  s.order = state.order;
  s.set_sources(*state.sources);
  s.spikes = SpikeDetector(s.config.spikes);
  if (!state.spikes.is_null()) s.spikes.from_json(state.spikes);
  s.rewinds = state.rewinds;
  return state.extra;
}

void Trainer::rewind(const VerifiedCheckpoint& checkpoint, const StepResult& spike) {
  State& s = *state_;
  const int64_t spike_step = s.steps_done + 1, spike_batch = s.order.batch_after(s.steps_done);
  RunMixture sources = *s.sources;
  load(checkpoint, true);  // it is of this run
  sources.take_targets(*s.sources);
  s.set_sources(std::move(sources));
  const int64_t first = s.order.batch_after(s.steps_done);
  s.order.leave_out(first, spike_batch + 1);
  s.rewinds.push_back(Json::Object{{"step", s.steps_done},
                                   {"spike_step", spike_step},
                                   {"left_out", Json::Array{first, spike_batch + 1}},
                                   {"reason", spike.spike->message()},
                                   {"loss", spike.loss},
                                   {"grad_norm", spike.grad_norm},
                                   {"lr", spike.learning_rate}});
}

Json Trainer::data_fingerprints() const { return fingerprints_of(state_->data); }

const Json& Trainer::rewinds() const { return state_->rewinds; }

void Trainer::init_from(const Path& directory) {
  State& s = *state_;
  load_weights(s.ctx, directory, s.model, [&](int32_t index) { return s.master(index); });
  s.optimizer->masters_to_weights(s.ctx);
  s.model.weights->mark_changed();
}

void Trainer::export_model(const Path& directory) {
  State& s = *state_;
  SaveModelOptions options;
  // In the compute dtype, so that the file gives the logits that training saw.
  options.dtype = storage_dtype(s.config.dtype);
  save_model(
      s.ctx, s.model, [&](int32_t index) { return s.master(index); }, directory, options);
}

}  // namespace loam
