#include "loam/config/train_config.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "loam/base/utf8.h"

namespace loam {

const std::vector<std::pair<ComputeDtype, const char*>>& enum_names(ComputeDtype) {
  static const std::vector<std::pair<ComputeDtype, const char*>> names{{ComputeDtype::automatic, "auto"},
                                                                       {ComputeDtype::f32, "f32"},
                                                                       {ComputeDtype::tf32, "tf32"},
                                                                       {ComputeDtype::bf16, "bf16"},
                                                                       {ComputeDtype::fp16, "fp16"}};
  return names;
}

const std::vector<std::pair<Packing, const char*>>& enum_names(Packing) {
  static const std::vector<std::pair<Packing, const char*>> names{{Packing::stream, "stream"},
                                                                  {Packing::best_fit, "best_fit"}};
  return names;
}

const std::vector<std::pair<OptimizerKind, const char*>>& enum_names(OptimizerKind) {
  static const std::vector<std::pair<OptimizerKind, const char*>> names{
      {OptimizerKind::adamw, "adamw"},     {OptimizerKind::adam, "adam"},       {OptimizerKind::sgd, "sgd"},
      {OptimizerKind::adagrad, "adagrad"}, {OptimizerKind::rmsprop, "rmsprop"}, {OptimizerKind::lion, "lion"},
      {OptimizerKind::muon, "muon"}};
  return names;
}

const std::vector<std::pair<AdamwForm, const char*>>& enum_names(AdamwForm) {
  static const std::vector<std::pair<AdamwForm, const char*>> names{{AdamwForm::torch, "torch"},
                                                                    {AdamwForm::course, "course"}};
  return names;
}

const std::vector<std::pair<MuonScale, const char*>>& enum_names(MuonScale) {
  static const std::vector<std::pair<MuonScale, const char*>> names{{MuonScale::original, "original"},
                                                                    {MuonScale::match_rms, "match_rms"}};
  return names;
}

const std::vector<std::pair<ScheduleKind, const char*>>& enum_names(ScheduleKind) {
  static const std::vector<std::pair<ScheduleKind, const char*>> names{{ScheduleKind::cosine, "cosine"},
                                                                       {ScheduleKind::wsd, "wsd"},
                                                                       {ScheduleKind::linear, "linear"},
                                                                       {ScheduleKind::inverse_sqrt, "inverse_sqrt"},
                                                                       {ScheduleKind::constant, "constant"}};
  return names;
}

const std::vector<std::pair<DecayShape, const char*>>& enum_names(DecayShape) {
  static const std::vector<std::pair<DecayShape, const char*>> names{
      {DecayShape::linear, "linear"}, {DecayShape::sqrt, "sqrt"}, {DecayShape::cosine, "cosine"}};
  return names;
}

const std::vector<std::pair<NumericsLevel, const char*>>& enum_names(NumericsLevel) {
  static const std::vector<std::pair<NumericsLevel, const char*>> names{
      {NumericsLevel::fast, "fast"}, {NumericsLevel::deterministic, "deterministic"}, {NumericsLevel::exact, "exact"}};
  return names;
}

const std::vector<std::pair<SpikeAction, const char*>>& enum_names(SpikeAction) {
  static const std::vector<std::pair<SpikeAction, const char*>> names{{SpikeAction::off, "off"},
                                                                      {SpikeAction::warn, "warn"},
                                                                      {SpikeAction::skip, "skip"},
                                                                      {SpikeAction::rewind, "rewind"}};
  return names;
}

const std::vector<std::pair<RecomputePart, const char*>>& enum_names(RecomputePart) {
  static const std::vector<std::pair<RecomputePart, const char*>> names{{RecomputePart::none, "none"},
                                                                        {RecomputePart::attention, "attention"},
                                                                        {RecomputePart::mlp, "mlp"},
                                                                        {RecomputePart::both, "both"}};
  return names;
}

namespace {

constexpr double kMaxCount = int64_t{1} << 40, kMaxRows = 1 << 24;
constexpr NumberRange kDataRanges[] = {{"length", 0, kMaxRows}};
constexpr double kMaxWeight = 1e15;
constexpr NumberRange kSourceRanges[] = {{"weight", 0, kMaxWeight}};
constexpr NumberRange kStageRanges[] = {{"begin", 0, 1}};
// Optimizers compute in f32: what would be 0, 1 or infinity there is refused.
constexpr NumberRange kOptimizerRanges[] = {
    {"lr", 0, FLT_MAX, true},
    {"min_lr_ratio", 0, 1},
    {"warmup_steps", 0, kMaxCount},
    {"decay_fraction", 0, 1},
    {"beta1", 0, 0.9999999},
    {"beta2", 0, 0.9999999},
    {"eps", 1e-37, FLT_MAX},
    {"weight_decay", 0, FLT_MAX},
    {"weight_decay_vectors", 0, FLT_MAX},
    {"clip_norm", 0, FLT_MAX},
    {"decay_steps", 0, kMaxCount},
    {"decay_until", 0, kMaxCount},
    {"momentum", 0, 0.9999999},
    {"dampening", 0, 1},
    {"alpha", 0, 0.9999999},
    {"muon_lr", 0, FLT_MAX},
    {"muon_momentum", 0, 0.9999999},
    {"muon_steps", 1, 100},
};
constexpr NumberRange kGroupRanges[] = {{"lr_scale", 0, FLT_MAX},
                                        {"weight_decay", 0, FLT_MAX},
                                        {"beta1", 0, 0.9999999},
                                        {"beta2", 0, 0.9999999},
                                        {"eps", 1e-37, FLT_MAX}};
constexpr NumberRange kSpikeRanges[] = {
    {"window", 8, 1 << 16}, {"threshold", 0, 1e6, true}, {"max_rewinds", 0, 1 << 16}};
constexpr NumberRange kPriceRanges[] = {{"watts", 0, 1e9}, {"per_kwh", 0, 1e9}, {"per_hour", 0, 1e9}};
constexpr NumberRange kTrainRanges[] = {
    {"steps", 1, kMaxCount},
    {"batch", 1, kMaxRows},
    {"micro_batch", kAuto, kMaxRows},
    {"z_loss", 0, 1},
    {"seed", 0, HUGE_VAL},
    {"log_every", 1, kMaxCount},
    {"val_every", 0, kMaxCount},
    {"val_rows", 0, kMaxCount},
    {"save_every", 0, kMaxCount},
    {"keep_last", 1, kMaxCount},
    {"sample_every", 0, kMaxCount},
    {"sample_tokens", 1, kMaxRows},
    {"keep_every", 0, kMaxCount},
    {"detail_every", 0, kMaxCount},
};

// What may be a key of JSON and a part of a file's name.
bool is_plain_name(const std::string& name) {
  constexpr size_t kLongest = 100;
  return !name.empty() && name.size() <= kLongest && name == printable(name) && name[0] != '.' && name[0] != ' ' &&
         name.find_first_of("/\\") == name.npos;
}

// Every one has a name of its own and a path.
template <class Named>
void check_names(const std::vector<Named>& list, const std::string& prefix) {
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string& name = list[i].name;
    LOAM_CHECK(is_plain_name(name),
               "{}[{}].name is \"{}\"; it must be 1 to 100 bytes of text without slashes and control characters, and "
               "not begin with a dot or a space",
               prefix, i, printable(name, false, 100));
    LOAM_CHECK(!list[i].path.empty(), "{}[{}].path is empty ({})", prefix, i, name);
    for (size_t j = 0; j < i; ++j) LOAM_CHECK(list[j].name != name, "{} has \"{}\" twice", prefix, name);
  }
}

void check_weights(const std::vector<double>& weights, const std::string& name) {
  double sum = 0;
  for (const double weight : weights) {
    LOAM_CHECK(weight >= 0 && weight <= kMaxWeight, "{} has {}; it must be from 0 to {}", name, weight, kMaxWeight);
    sum += weight;
  }
  LOAM_CHECK(sum > 0, "{}: all are 0", name);
}

constexpr size_t kMaxSources = 1024;

void check_data(const DataConfig& c) {
  check_ranges(c, "data", kDataRanges);
  LOAM_CHECK(c.sources.size() <= kMaxSources, "data.sources has {} entries; there may be {}", c.sources.size(),
             kMaxSources);
  check_names(c.sources, "data.sources");
  check_names(c.validation, "data.validation");
  LOAM_CHECK(c.path.empty() || c.sources.empty(), "data.path and data.sources are both set: one says where data are");
  std::vector<double> own;
  for (size_t i = 0; i < c.sources.size(); ++i) {
    check_ranges(c.sources[i], fmt::format("data.sources[{}]", i), kSourceRanges);
    own.push_back(c.sources[i].weight);
  }
  if (!own.empty() && c.stages.empty()) check_weights(own, "the weights of data.sources");
  LOAM_CHECK(c.stages.empty() || !c.sources.empty(), "data.stages needs data.sources");
  for (size_t i = 0; i < c.stages.size(); ++i) {
    const DataStageConfig& stage = c.stages[i];
    const std::string name = fmt::format("data.stages[{}]", i);
    check_ranges(stage, name, kStageRanges);
    LOAM_CHECK(i > 0 || stage.begin == 0, "{}.begin is {}; the first stage begins at 0", name, stage.begin);
    LOAM_CHECK(i == 0 || stage.begin > c.stages[i - 1].begin, "{}.begin is {}, which is not behind {}", name,
               stage.begin, c.stages[i - 1].begin);
    LOAM_CHECK(stage.begin < 1, "{}.begin is {}: nothing is left of the run", name, stage.begin);
    LOAM_CHECK(stage.weights.size() == c.sources.size(), "{}.weights has {} numbers for {} sources", name,
               stage.weights.size(), c.sources.size());
    check_weights(stage.weights, name + ".weights");
  }
}

void check_recompute(const RecomputeConfig& c, int64_t layers) {
  for (size_t i = 0; i < c.groups.size(); ++i) {
    const int64_t size = c.groups[i];
    LOAM_CHECK(size >= 1 && size <= layers, "recompute.groups[{}] is {}; it must be from 1 to the {} layers", i, size,
               layers);
    LOAM_CHECK(i == 0 || size < c.groups[i - 1], "recompute.groups[{}] is {}, which is not below the {} before it", i,
               size, c.groups[i - 1]);
  }
}

bool is_one_of(OptimizerKind kind, std::initializer_list<OptimizerKind> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}
bool has_moments(OptimizerKind kind) {
  return is_one_of(kind, {OptimizerKind::adamw, OptimizerKind::adam, OptimizerKind::muon});
}
bool decays_alone(OptimizerKind kind) {
  return is_one_of(kind, {OptimizerKind::adamw, OptimizerKind::lion, OptimizerKind::muon});
}

std::string name_of(OptimizerKind kind) { return config_detail::to_json(kind).as_string(); }
std::string group_name(size_t i) { return fmt::format("optimizer.groups[{}]", i); }

// The optimizer's, then those of its groups.
std::vector<OptimizerKind> kinds_of(const OptimizerConfig& c) {
  std::vector<OptimizerKind> kinds{c.kind};
  for (const OptimizerGroupConfig& group : c.groups) kinds.push_back(group.kind.value_or(c.kind));
  return kinds;
}
template <class Condition>
bool any_kind(const OptimizerConfig& c, const Condition& condition) {
  const std::vector<OptimizerKind> kinds = kinds_of(c);
  return std::any_of(kinds.begin(), kinds.end(), condition);
}
bool uses(const OptimizerConfig& c, std::initializer_list<OptimizerKind> list) {
  return any_kind(c, [&](OptimizerKind kind) { return is_one_of(kind, list); });
}

bool has_horizon(const OptimizerConfig& c) {
  return c.schedule == ScheduleKind::cosine || c.schedule == ScheduleKind::linear;
}

void check_optimizer(const OptimizerConfig& c) {
  using enum OptimizerKind;
  check_ranges(c, "optimizer", kOptimizerRanges);
  for (size_t i = 0; i < c.groups.size(); ++i) {
    check_ranges(c.groups[i], group_name(i), kGroupRanges);
    LOAM_CHECK(!c.groups[i].match.empty(), "{}.match is empty", group_name(i));
  }
  LOAM_CHECK(c.form == AdamwForm::torch || uses(c, {adamw, muon}),
             "optimizer.form course is a form of adamw, not of another kind");
  LOAM_CHECK(!uses(c, {sgd}) || !c.nesterov || (c.momentum > 0 && c.dampening == 0),
             "optimizer.nesterov needs optimizer.momentum and no dampening");
  LOAM_CHECK(!has_horizon(c) || c.decay_until == 0 || c.decay_until > c.warmup_steps,
             "optimizer.decay_until ({}) is not beyond optimizer.warmup_steps ({})", c.decay_until, c.warmup_steps);
}

// Maximal update parametrisation scales the rates of these.
void check_width_scaling(const OptimizerConfig& c) {
  const std::vector<OptimizerKind> kinds = kinds_of(c);
  for (size_t i = 0; i < kinds.size(); ++i) {
    LOAM_CHECK(has_betas(kinds[i]),
               "model.mup_base_dim makes rates that adamw, adam, lion and muon need, not {}.kind {}",
               i == 0 ? "optimizer" : group_name(i - 1), name_of(kinds[i]));
  }
}

// Sets what is usual where nothing is set. A group without a kind of its own keeps what the optimizer has.
void derive_optimizer(OptimizerConfig& c) {
  const RuleSettings rule = rule_settings(c);
  c.beta2 = rule.beta2, c.eps = rule.eps;
  for (OptimizerGroupConfig& group : c.groups) {
    if (!group.kind) continue;
    const RuleSettings own = rule_settings(c, group);
    if (has_betas(own.kind)) group.beta1 = own.beta1, group.beta2 = own.beta2;
    if (has_eps(own.kind)) group.eps = own.eps;
  }
}

// Settings that kinds and schedule have no use for.
std::vector<std::string> unused_settings(const OptimizerConfig& c) {
  using enum OptimizerKind;
  std::vector<std::string> names;
  const auto add = [&](bool used, std::initializer_list<const char*> list) {
    if (!used) names.insert(names.end(), list.begin(), list.end());
  };
  add(has_betas(c.kind), {"beta1", "beta2"});
  add(has_eps(c.kind), {"eps"});
  add(uses(c, {sgd, rmsprop}), {"momentum"});
  add(uses(c, {sgd}) && c.momentum > 0, {"dampening"});
  add(uses(c, {sgd}), {"nesterov"});
  add(uses(c, {rmsprop}), {"alpha"});
  add(uses(c, {muon}), {"muon_lr", "muon_momentum", "muon_nesterov", "muon_steps", "muon_scale"});
  add(c.schedule == ScheduleKind::wsd, {"decay_fraction", "decay_steps", "decay_shape"});
  add(has_horizon(c), {"decay_until"});
  add(c.schedule != ScheduleKind::constant, {"min_lr_ratio"});
  return names;
}

// One line that names those of them which were set all the same; "" for none.
std::string idle_settings(const OptimizerConfig& c) {
  OptimizerConfig usual;
  usual.kind = c.kind;
  derive_optimizer(usual);
  const Json set = config_to_json(c), untouched = config_to_json(usual);
  std::string list;
  for (const std::string& name : unused_settings(c)) {
    if (set.at(name) != untouched.at(name)) list += (list.empty() ? "optimizer." : ", optimizer.") + name;
  }
  if (list.empty()) return "";
  return fmt::format("without effect under optimizer.kind {} and optimizer.schedule {}: {}", name_of(c.kind),
                     config_detail::to_json(c.schedule).as_string(), list);
}

// Decay that is added to the gradient is another thing than decoupled decay, of which 0.1 is usual.
void add_decay_warnings(const OptimizerConfig& c, std::vector<std::string>& warnings) {
  const auto add = [&](OptimizerKind kind, double decay, const std::string& name) {
    if (decays_alone(kind) || decay < 0.05) return;
    warnings.push_back(
        fmt::format("{} ({}) is added to the gradient under {}: usual are 0 to 0.001", name, decay, name_of(kind)));
  };
  add(c.kind, c.weight_decay, "optimizer.weight_decay");
  for (size_t i = 0; i < c.groups.size(); ++i) {
    const OptimizerGroupConfig& group = c.groups[i];
    const bool is_class = group.match == "embedding" || group.match == "head" || group.match == "matrix";
    if (group.weight_decay)
      add(group.kind.value_or(c.kind), *group.weight_decay, group_name(i) + ".weight_decay");
    else if (group.kind && is_class)
      add(*group.kind, c.weight_decay, "optimizer.weight_decay in " + group_name(i));
  }
}

void add_schedule_warnings(const TrainConfig& c, std::vector<std::string>& warnings) {
  const OptimizerConfig& o = c.optimizer;
  if (o.warmup_steps >= c.steps) {
    warnings.push_back(
        fmt::format("optimizer.warmup_steps ({}) is not below steps ({}): the learning rate never reaches optimizer.lr",
                    o.warmup_steps, c.steps));
  } else if (o.schedule == ScheduleKind::wsd && o.decay_steps > c.steps - o.warmup_steps) {
    warnings.push_back(
        fmt::format("optimizer.decay_steps ({}) reaches into the warm-up: the rate decays in the last {} of {} steps",
                    o.decay_steps, c.steps - o.warmup_steps, c.steps));
  }
}

}  // namespace

bool has_betas(OptimizerKind kind) { return has_moments(kind) || kind == OptimizerKind::lion; }

bool has_eps(OptimizerKind kind) {
  return has_moments(kind) || is_one_of(kind, {OptimizerKind::adagrad, OptimizerKind::rmsprop});
}

RuleSettings rule_settings(const OptimizerConfig& config) { return rule_settings(config, {}); }

RuleSettings rule_settings(const OptimizerConfig& config, const OptimizerGroupConfig& group) {
  const OptimizerKind kind = group.kind.value_or(config.kind);
  RuleSettings rule{kind, OptimizerConfig{}.beta1, kind == OptimizerKind::lion ? 0.99 : 0.95,
                    kind == OptimizerKind::adagrad ? 1e-10 : 1e-8};
  if (kind == config.kind || (has_moments(kind) && has_moments(config.kind))) {
    rule = {kind, config.beta1, config.beta2.value_or(rule.beta2), config.eps.value_or(rule.eps)};
  }
  return {kind, group.beta1.value_or(rule.beta1), group.beta2.value_or(rule.beta2), group.eps.value_or(rule.eps)};
}

const std::string& first_data_path(const DataConfig& data) {
  return data.path.empty() && !data.sources.empty() ? data.sources[0].path : data.path;
}

TrainConfig derive(TrainConfig c) {
  c.model = derive(c.model);
  LOAM_CHECK(c.model.head == HeadKind::language_model,
             "model.head=scalar: training predicts tokens, which takes a language model's head");
  check_data(c.data);
  check_optimizer(c.optimizer);
  derive_optimizer(c.optimizer);
  if (c.model.mup_base_dim > 0) check_width_scaling(c.optimizer);
  check_ranges(c.spikes, "spikes", kSpikeRanges);
  check_ranges(c.price, "price", kPriceRanges);
  LOAM_CHECK(!(c.overfit_one_batch && c.spikes.action == SpikeAction::rewind),
             "spikes.action is rewind, which leaves batches out; overfit_one_batch has only one");
  check_ranges(c, "", kTrainRanges);
  check_recompute(c.recompute, c.model.layers);
  LOAM_CHECK(c.dtype != ComputeDtype::tf32 || c.numerics != NumericsLevel::exact,
             "dtype tf32 rounds what numerics exact multiplies as it is: one of the two");
  if (c.data.length == 0) c.data.length = c.model.context_length;
  LOAM_CHECK(c.data.length <= c.model.context_length, "data.length ({}) is above model.context_length ({})",
             c.data.length, c.model.context_length);
  if (c.micro_batch == 0) c.micro_batch = c.batch;
  LOAM_CHECK(c.micro_batch == kAuto || c.batch % c.micro_batch == 0, "batch ({}) is not a multiple of micro_batch ({})",
             c.batch, c.micro_batch);
  const double tokens = static_cast<double>(c.steps) * static_cast<double>(c.batch * c.data.length);
  LOAM_CHECK(tokens < 0x1p62, "steps ({}) of batch ({}) rows of data.length ({}) are too many tokens to count", c.steps,
             c.batch, c.data.length);
  return c;
}

std::vector<std::string> config_warnings(const TrainConfig& c) {
  std::vector<std::string> warnings;
  add_schedule_warnings(c, warnings);
  if (const std::string idle = idle_settings(c.optimizer); !idle.empty()) warnings.push_back(idle);
  add_decay_warnings(c.optimizer, warnings);
  return warnings;
}

template Json config_to_json(const TrainConfig&);
template void config_from_json(TrainConfig&, const Json&);
template void config_set(TrainConfig&, std::string_view);
template std::vector<FieldInfo> config_fields(const TrainConfig&);

}  // namespace loam
