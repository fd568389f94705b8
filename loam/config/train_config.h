// A training run: model, data, optimizer, schedule and book-keeping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loam/config/fields.h"
#include "loam/config/model_config.h"
#include "loam/config/recompute_config.h"

namespace loam {

// automatic is what the device is best at: loam/train/trainer.h settles it. tf32 is f32 whose products a GPU may make
// of factors that it rounds to 10 bits. fp16 trains with a loss scale.
enum class ComputeDtype { automatic, f32, tf32, bf16, fp16 };
enum class OptimizerKind { adamw, adam, sgd, adagrad, rmsprop, lion, muon };
enum class AdamwForm { torch, course };
enum class MuonScale { original, match_rms };
enum class ScheduleKind { cosine, wsd, linear, inverse_sqrt, constant };
enum class DecayShape { linear, sqrt, cosine };
// What may be relied on to be bit-equal: docs/numerics.md.
enum class NumericsLevel { fast, deterministic, exact };
const std::vector<std::pair<ComputeDtype, const char*>>& enum_names(ComputeDtype);
const std::vector<std::pair<OptimizerKind, const char*>>& enum_names(OptimizerKind);
const std::vector<std::pair<AdamwForm, const char*>>& enum_names(AdamwForm);
const std::vector<std::pair<MuonScale, const char*>>& enum_names(MuonScale);
const std::vector<std::pair<ScheduleKind, const char*>>& enum_names(ScheduleKind);
const std::vector<std::pair<DecayShape, const char*>>& enum_names(DecayShape);
const std::vector<std::pair<NumericsLevel, const char*>>& enum_names(NumericsLevel);
// What is done about a step whose loss or gradient jumps: loam/train/spikes.h.
enum class SpikeAction { off, warn, skip, rewind };
const std::vector<std::pair<SpikeAction, const char*>>& enum_names(SpikeAction);

// How documents become rows: loam/data/loader.h.
enum class Packing { stream, best_fit };
const std::vector<std::pair<Packing, const char*>>& enum_names(Packing);

// One of several sources of training data.
struct DataSourceConfig {
  std::string name;
  std::string path;
  double weight = 1;  // times a common factor: the share of the rows, where data.stages does not say it
};
template <class Config, class Visitor>
requires FieldsOf<Config, DataSourceConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("name", c.name, "in metrics and messages");
  visit("path", c.path, "directory made by `loam data tokenize` or `data import`");
  visit("weight", c.weight, "share of the rows, relative to the other sources");
}

// A part of the run with shares of its own, up to the begin of the next one.
struct DataStageConfig {
  double begin = 0;             // share of the run's steps; of the first stage 0
  std::vector<double> weights;  // one a source; 0: the source is left out
};
template <class Config, class Visitor>
requires FieldsOf<Config, DataStageConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("begin", c.begin, "share of the steps that lie before it");
  visit("weights", c.weights, "of the sources, in their order; 0: left out");
}

struct ValidationSetConfig {
  std::string name;
  std::string path;
};
template <class Config, class Visitor>
requires FieldsOf<Config, ValidationSetConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("name", c.name, "in metrics and messages");
  visit("path", c.path, "a token set, or a directory with val/");
}

struct DataConfig {
  std::string path;    // directory made by `loam data tokenize`: train/, val/, tokenizer.json
  int64_t length = 0;  // T; 0: the model's context length
  bool mask_documents = true;
  bool shuffle = true;
  Packing packing = Packing::stream;
  std::vector<DataSourceConfig> sources;        // several, instead of `path`
  std::vector<DataStageConfig> stages;          // empty: one, with the sources' own weights
  std::vector<ValidationSetConfig> validation;  // empty: the val/ of `path` or of each source
};
template <class Config, class Visitor>
requires FieldsOf<Config, DataConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("path", c.path, "directory made by `loam data tokenize` or `data import`");
  visit("length", c.length, "tokens a row; 0: the model's context length");
  visit("mask_documents", c.mask_documents, "attention and targets stay within a document");
  visit("shuffle", c.shuffle, "permute the rows of each epoch");
  visit("packing", c.packing, "stream: rows are cut from the stream of documents; best_fit: whole documents fill rows");
  visit("sources", c.sources, "several sources instead of path");
  visit("stages", c.stages, "a schedule of the sources' weights; empty: their own, from begin to end");
  visit("validation", c.validation, "sets to score; empty: the val/ of path, or of each source");
}

// Other settings for some of the parameters.
struct OptimizerGroupConfig {
  std::string match;  // embedding | head | matrix | vector, or a pattern of names: "layers.*.attention.*"
  double lr_scale = 1;
  std::optional<double> weight_decay;  // not set: that of the kind of parameter
  std::optional<OptimizerKind> kind;   // not set: the optimizer's
  std::optional<double> beta1, beta2, eps;
};
template <class Config, class Visitor>
requires FieldsOf<Config, OptimizerGroupConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("match", c.match, "embedding, head, matrix or vector, or a pattern of names with * and ?");
  visit("lr_scale", c.lr_scale, "times the learning rate");
  visit("weight_decay", c.weight_decay, "instead of weight_decay or weight_decay_vectors");
  visit("kind", c.kind, "another rule, with what is usual for it; null: the optimizer's");
  visit("beta1", c.beta1, "instead of the optimizer's, as the next two");
  visit("beta2", c.beta2, "decay of the second moment; lion: of its only one");
  visit("eps", c.eps, "added to the root of the second moment");
}

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 1e-3;
  double min_lr_ratio = 0.1;  // the schedule ends at lr times this
  int64_t warmup_steps = 100;
  ScheduleKind schedule = ScheduleKind::cosine;
  double decay_fraction = 0.2;  // wsd: share of the steps that decays
  int64_t decay_steps = 0;      // wsd: how many; 0: decay_fraction of them
  int64_t decay_until = 0;      // cosine, linear: the step that is at the minimum; 0: the end of the run
  DecayShape decay_shape = DecayShape::linear;
  double beta1 = 0.9;
  std::optional<double> beta2, eps;  // not set: what is usual for the kind
  double weight_decay = 0.1;         // matrices and embeddings
  double weight_decay_vectors = 0;   // norms and biases
  double clip_norm = 1;              // 0: no clipping
  AdamwForm form = AdamwForm::torch;
  double momentum = 0, dampening = 0;  // sgd; momentum: rmsprop too
  bool nesterov = false;
  double alpha = 0.99;  // rmsprop
  double muon_lr = 0;   // 0: lr
  double muon_momentum = 0.95;
  bool muon_nesterov = true;
  int64_t muon_steps = 5;
  MuonScale muon_scale = MuonScale::match_rms;
  std::vector<OptimizerGroupConfig> groups;  // of those that match a parameter the last one counts
};
template <class Config, class Visitor>
requires FieldsOf<Config, OptimizerConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("kind", c.kind, "the rule; muon: Muon for the matrices of the layers, AdamW for all else");
  visit("lr", c.lr, "peak learning rate");
  visit("min_lr_ratio", c.min_lr_ratio, "the schedule ends at lr times this");
  visit("warmup_steps", c.warmup_steps, "steps of linear warm-up from 0");
  visit("schedule", c.schedule, "shape of the learning rate after warm-up");
  visit("decay_fraction", c.decay_fraction, "wsd: share of all steps in which the rate decays at the end");
  visit("decay_steps", c.decay_steps, "wsd: steps in which the rate decays at the end; 0: decay_fraction of all");
  visit("decay_until", c.decay_until,
        "cosine, linear: steps after which the rate is at its minimum, nanoGPT's lr_decay_iters; 0: the run's end");
  visit("decay_shape", c.decay_shape, "wsd: linear, sqrt (1 - sqrt of the share of the decay that is over) or cosine");
  visit("beta1", c.beta1, "adamw, adam, lion: decay of the first moment");
  visit("beta2", c.beta2, "adamw, adam: decay of the second moment; lion: of its only one; null: 0.95, lion: 0.99");
  visit("eps", c.eps,
        "adamw, adam, adagrad, rmsprop: added to the root of the second moment; null: 1e-8, adagrad: 1e-10");
  visit("weight_decay", c.weight_decay,
        "of matrices and embeddings; adamw, lion, muon: decoupled; the others: added to the gradient, as in torch");
  visit("weight_decay_vectors", c.weight_decay_vectors, "the same of norm weights and biases");
  visit("clip_norm", c.clip_norm, "largest global L2 norm of the gradient; 0: no clipping");
  visit("form", c.form, "adamw: as torch, or eps beside the root that is not corrected (Stanford's CS336)");
  visit("momentum", c.momentum, "sgd, rmsprop: share of the last step that goes on; 0: none");
  visit("dampening", c.dampening, "sgd: share of the gradient that does not enter the momentum");
  visit("nesterov", c.nesterov, "sgd: Nesterov's momentum");
  visit("alpha", c.alpha, "rmsprop: decay of the mean square");
  visit("muon_lr", c.muon_lr, "muon: peak learning rate of its matrices; 0: lr");
  visit("muon_momentum", c.muon_momentum, "muon: decay of the mean gradient");
  visit("muon_nesterov", c.muon_nesterov, "muon: Nesterov's momentum");
  visit("muon_steps", c.muon_steps, "muon: steps of Newton and Schulz");
  visit("muon_scale", c.muon_scale,
        "muon: match_rms: times 0.2 sqrt(max(rows, columns)), for AdamW's rates; original: times sqrt(max(1, rows / "
        "columns)), for rates near 0.02");
  visit("groups", c.groups, "other settings for some parameters; of the entries that match one the last counts");
}

// Whether a rule has a use for betas, and for eps; muon: for what is no matrix of a layer, which AdamW trains.
bool has_betas(OptimizerKind kind);
bool has_eps(OptimizerKind kind);

// The rule that some parameters are trained by, with nothing left open. Its other settings are the optimizer's.
struct RuleSettings {
  OptimizerKind kind;
  double beta1, beta2, eps;
  bool operator==(const RuleSettings&) const = default;
};
// That of the optimizer, or of one of its groups. What neither sets is usual for the kind; a group of another kind has
// nothing of the optimizer's, but that adamw, adam and muon share betas and eps.
RuleSettings rule_settings(const OptimizerConfig& config);
RuleSettings rule_settings(const OptimizerConfig& config, const OptimizerGroupConfig& group);

struct SpikeConfig {
  SpikeAction action = SpikeAction::warn;
  int64_t window = 128;
  double threshold = 8;
  int64_t max_rewinds = 10;
};
template <class Config, class Visitor>
requires FieldsOf<Config, SpikeConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit(
      "action", c.action,
      "warn: say it and dump the batch; skip: leave its update out, too; rewind: go back to the newest checkpoint and "
      "leave out the batches from there up to the spike's");
  visit("window", c.window, "earlier steps that a loss and a gradient norm are compared with");
  visit("threshold", c.threshold, "robust standard deviations above their median that make a spike");
  visit("max_rewinds", c.max_rewinds, "the spike after this many rewinds ends the run");
}

struct PriceConfig {
  double watts = 0;
  double per_kwh = 0;
  double per_hour = 0;
};
template <class Config, class Visitor>
requires FieldsOf<Config, PriceConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("watts", c.watts,
        "power that the run is taken to draw; 0: what the processor's own meter (RAPL) says, if it may "
        "be read");
  visit("per_kwh", c.per_kwh, "money for a kilowatt-hour");
  visit("per_hour", c.per_hour, "money for an hour of the machine");
}

// A number that the program finds; "auto" in a configuration.
inline constexpr int64_t kAuto = -1;

struct TrainConfig {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  int64_t steps = 1000;
  int64_t batch = 32;       // rows an optimizer step
  int64_t micro_batch = 0;  // rows a forward pass; 0: as many as batch; kAuto: as many as fit
  RecomputeConfig recompute;
  ComputeDtype dtype = ComputeDtype::automatic;
  NumericsLevel numerics = NumericsLevel::fast;
  double z_loss = 0;  // times lse^2 of a token's logits is added to its loss
  int64_t seed = 1;
  int64_t log_every = 10;
  int64_t val_every = 250;   // steps; 0: only at the end
  int64_t val_rows = 64;     // rows of the validation set that are scored; 0: all
  int64_t save_every = 500;  // steps; 0: only at the end
  int64_t keep_last = 2;     // checkpoints
  int64_t keep_every = 0;    // steps
  bool keep_best = false;
  int64_t sample_every = 250;  // steps; 0: never
  std::string sample_prompt;   // empty: the end-of-text token
  int64_t sample_tokens = 64;
  int64_t detail_every = 0;        // steps; 0: never
  bool overfit_one_batch = false;  // train on the first batch for ever: the loss must go to 0
  SpikeConfig spikes;
  PriceConfig price;
};
template <class Config, class Visitor>
requires FieldsOf<Config, TrainConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("model", c.model, "the Transformer");
  visit("data", c.data, "what is read");
  visit("optimizer", c.optimizer, "the optimizer and its schedule");
  visit("steps", c.steps, "optimizer steps");
  visit("batch", c.batch, "rows an optimizer step");
  visit("micro_batch", c.micro_batch,
        "rows a forward pass; 0: as many as batch; auto: as many as fit into 90 % of the memory, found when the run "
        "begins");
  visit("recompute", c.recompute, "activations that backward computes again: less memory for more time, the same bits");
  visit("dtype", c.dtype,
        "compute dtype of matrices and activations; auto: bf16 on a GPU, f32 on the CPU; tf32: f32 whose factors a GPU "
        "rounds to 10 bits in matrix products; fp16: with a loss scale that follows the gradients");
  visit(
      "numerics", c.numerics,
      "fast: the quickest kernels; deterministic: the same bits on every run; exact: also for any batch beside a row");
  visit("z_loss", c.z_loss, "what times the squared log-sum-exp of a token's logits is added to its loss; PaLM: 1e-4");
  visit("seed", c.seed, "of initial weights and of the order of the data");
  visit("log_every", c.log_every, "steps between lines of metrics");
  visit("val_every", c.val_every, "steps between validations; 0: only at the end");
  visit("val_rows", c.val_rows, "rows of the validation set that are scored; 0: all");
  visit("save_every", c.save_every, "steps between checkpoints; 0: only at the end");
  visit("keep_last", c.keep_last, "newest checkpoints that are kept");
  visit("keep_every", c.keep_every, "steps between checkpoints that are never removed; 0: none such");
  visit("keep_best", c.keep_best,
        "save before every validation, and keep the checkpoint of the lowest validation loss");
  visit("sample_every", c.sample_every, "steps between samples; 0: never");
  visit("sample_prompt", c.sample_prompt, "what samples start from; empty: the end-of-text token");
  visit("sample_tokens", c.sample_tokens, "tokens a sample");
  visit("detail_every", c.detail_every,
        "steps between records of every layer's gradient, weight, update and activation; 0: never");
  visit("overfit_one_batch", c.overfit_one_batch, "train on the first batch for ever: the loss must go to 0");
  visit("spikes", c.spikes, "losses and gradients that jump");
  visit("price", c.price, "what energy and machine cost");
}

// Compiled once, in train_config.cpp.
extern template Json config_to_json(const TrainConfig&);
extern template void config_from_json(TrainConfig&, const Json&);
extern template void config_set(TrainConfig&, std::string_view);
extern template std::vector<FieldInfo> config_fields(const TrainConfig&);

// The directory of the data, of several sources that of the first; empty if none is set. All have the same tokenizer.
const std::string& first_data_path(const DataConfig& data);

// Derives the model, the row length and the micro-batch, and checks the whole: Error{kInvalidArgument} that names the
// setting. Idempotent. A micro_batch of auto stays: settle_micro_batch of loam/train/trainer.h.
TrainConfig derive(TrainConfig config);

// What a derived configuration allows and probably nobody wants, one line each.
std::vector<std::string> config_warnings(const TrainConfig& config);

}  // namespace loam
