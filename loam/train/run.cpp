#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "loam/base/clock.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/model/families/family.h"
#include "loam/train/fingerprint.h"
#include "loam/train/memory.h"
#include "loam/train/metrics.h"
#include "loam/train/optimizer_groups.h"
#include "loam/train/run_data.h"
#include "loam/train/run_directory.h"
#include "loam/train/run_dump.h"
#include "loam/train/run_mixture.h"
#include "loam/train/run_origin.h"

namespace loam {
namespace {

constexpr int kMaxSkippedSteps = 20;  // in a row
constexpr double kPatience = 3;       // seconds that an interrupted step may still take

bool is_due(int64_t step, int64_t every, int64_t last) { return step == last || (every > 0 && step % every == 0); }

// Whether loss and gradient are numbers, but for what a lower loss scale cures.
bool is_finite(const StepResult& result) {
  return result.overflow || (result.loss && std::isfinite(*result.loss) && std::isfinite(*result.grad_norm));
}

// What a validation's record is called in MetricsLog::has.
std::string val_kind(const std::vector<NamedSet>& sets, size_t set) {
  return sets.size() == 1 && sets[0].name == kOnlySet ? "val" : "val/" + sets[set].name;
}

// Whether a call would only write again what is there.
bool is_finished(const Trainer& trainer, const RunOptions& options, const CheckpointInfo& start) {
  const TrainConfig& config = trainer.config();
  const int64_t step = trainer.steps_done();
  if (step < config.steps || !has_model_of(options.out, start)) return false;
  const auto missing = [&](const std::string& kind, int64_t every) {
    return is_due(step, every, config.steps) && !MetricsLog::has(options.out, kind, step);
  };
  for (size_t set = 0; set < trainer.data().val.size(); ++set) {
    if (missing(val_kind(trainer.data().val, set), config.val_every)) return false;
  }
  return !(config.sample_every > 0 && options.sample && missing("sample", config.sample_every));
}

// What earlier lives of the run left, besides the state of the trainer.
struct Earlier {
  Path checkpoint;  // that the run goes on from; empty for none
  double seconds = 0;
  int64_t records = 0;  // in metrics.jsonl when it was saved
  std::string id;       // of the run
  Json origin;          // loam/train/run_origin.h
  RunCost cost;
};

class Run {
 public:
  Run(const ExecContext& ctx, Trainer& trainer, const RunOptions& options, const Path& data, const Earlier& earlier)
      : ctx_(ctx),
        trainer_(trainer),
        config_(trainer.config()),
        options_(options),
        data_(data),
        earlier_(earlier),
        first_step_(trainer.steps_done()),
        plan_(Trainer::plan(ctx, config_, 0)),
        peak_rate_(measure_matmul_rate(ctx, config_.dtype)),
        store_(options.out / "checkpoints"),
        metrics_(options.out, first_step_, earlier.records),
        file_(options.out, earlier.id),
        saved_step_(first_step_),
        saved_(earlier.checkpoint) {
    ctx.arena->reset_peak();
  }

  RunSummary operator()() {
    const InterruptNotice notice(
        "interrupted: stopping after this step, with a checkpoint; a second signal stops at once");
    say_memory();
    write_start();
    write_rewinds();
    update_best();
    if (config_.spikes.action == SpikeAction::rewind && store_.list().empty()) save();  // what a rewind goes back to
    if (first_step_ > 0) evaluate();  // what a kill after the save cut off
    {
      Progress progress("train", config_.steps - first_step_, "steps");
      train(progress);
    }
    const int64_t steps = trainer_.steps_done() - first_step_;
    if (in_doubt_ || (steps > 0 && skipped_in_all_ == steps)) stop_after_nothing(trainer_.steps_done());
    if (steps > 0) log_info("{}", memory_at_peak(ctx_));
    if (skipped_in_all_ > 0) log_warn("{} of {} steps changed nothing", skipped_in_all_, steps);
    summary_.interrupted = trainer_.steps_done() < config_.steps || cut_short_;
    const auto is_saved_here = [this] { return lies_in(saved_, options_.out / "checkpoints"); };
    // A checkpoint of another directory that has all steps becomes this run's as it is.
    if (trainer_.steps_done() > saved_step_ || (!summary_.interrupted && !is_saved_here())) save();
    metrics_.plot();
    summary_.has_model = trainer_.steps_done() > 0 && (steps > 0 || is_saved_here());
    if (summary_.has_model) write_model_directory(trainer_, options_.out, data_);
    summary_.steps = trainer_.steps_done();
    summary_.seconds = seconds();
    summary_.id = file_.id();
    summary_.cost = cost();
    if (const std::string text = to_string(summary_.cost); !text.empty()) log_info("used {}", text);
    if (life_seconds_ > 0) summary_.tokens_per_second = life_tokens_ / life_seconds_;
    return summary_;
  }

 private:
  double seconds() const { return earlier_.seconds + watch_.seconds(); }

  RunCost cost() {
    const double joules = energy_.joules();
    return earlier_.cost +
           cost_of(config_.price, watch_.seconds(), energy_.available() ? std::optional(joules) : std::nullopt);
  }

  Json record(const char* kind) const {
    Json json = Json::object();
    json["kind"] = kind;
    json["step"] = trainer_.steps_done();
    json["time"] = seconds();
    return json;
  }

  void say_memory() const {
    try {
      RunPlan plan = plan_;
      plan.memory = predict_memory(ctx_, config_);
      if (plan.fits()) return log_info("a step takes {}", plan.memory.str());
      log_warn("a step takes {}, {} are available; {}", format_bytes(static_cast<double>(plan.memory.total())),
               format_bytes(static_cast<double>(*plan.available_bytes)),
               memory_advice(ctx_, config_, plan.available_bytes));
    } catch (const Error& error) {  // a forecast must not end a run
      log_debug("no forecast of memory: {}", error.what());
    }
  }

  void write_start() {
    Json start = record("start");
    const Json fingerprint = fingerprint_of(ctx_, trainer_, options_);
    start["run"] = file_.id();
    start["parameters"] = plan_.parameters;
    start["tokens_per_step"] = plan_.tokens_per_step;
    if (config_.data.packing == Packing::best_fit) start["padding"] = padding_share(config_, trainer_.mixture());
    start["steps"] = config_.steps;
    if (!earlier_.origin.is_null()) start["origin"] = earlier_.origin;
    for (const auto& [key, value] : fingerprint.as_object()) start[key] = value;
    file_.add_start(trainer_.steps_done(), fingerprint);
    metrics_.write(start);
    log_info("{} parameters, {} tokens a step, {} steps{}", format_count(static_cast<double>(plan_.parameters)),
             plan_.tokens_per_step, config_.steps,
             first_step_ > 0 ? fmt::format(", going on after step {}", first_step_) : "");
  }

  // What an error finds trained is saved, if it is good.
  void train(Progress& progress) {
    try {
      while (trainer_.steps_done() < config_.steps && !interrupted()) train_step(progress);
      take_results(true, progress);
    } catch (const Error& error) {
      while (const auto result = trainer_.next_result(true)) in_doubt_ |= result->abandoned || !is_finite(*result);
      if (in_doubt_ || saving_ || trainer_.steps_done() == saved_step_) throw;
      save();
      fail(error.code(), "{}; what was trained is in {}", error.what(), saved_.string());
    }
  }

  void train_step(Progress& progress) {
    const Stopwatch watch;
    std::optional<Stopwatch> waiting;  // since the interrupt
    lap_ = Stopwatch();
    trainer_.launch([&](int64_t done, int64_t all) {
      if (!interrupted()) return false;
      if (!waiting) waiting.emplace();
      const double rate = static_cast<double>(done) / watch.seconds();
      return waiting->seconds() > kPatience || (done > 0 && static_cast<double>(all - done) / rate > kPatience);
    });
    take_results(must_know(trainer_.steps_launched()), progress);
  }

  // Whether what the run does next depends on the step. After one that changed nothing it does not run ahead.
  bool must_know(int64_t step) const {
    return step == 1 || skipped_ > 0 || saves_after(step) || is_due(step, config_.log_every, config_.steps) ||
           is_due(step, config_.val_every, config_.steps) || is_due(step, config_.sample_every, config_.steps);
  }

  // Of the steps that are done, with `wait` of all that were launched.
  void take_results(bool wait, Progress& progress) {
    while (const std::optional<StepResult> result = trainer_.next_result(wait)) {
      if (!result->abandoned) count_time();
      take(*result, progress);
      lap_ = Stopwatch();
    }
    count_time();
  }

  void count_time() {
    const double seconds = lap_.seconds();
    life_seconds_ += seconds;
    interval_seconds_ += seconds;
    lap_ = Stopwatch();
  }

  void take(const StepResult& result, Progress& progress) {
    if (result.abandoned && !result.loss) return log_info("step {} is given up: it would take long", result.step + 1);
    if (result.loss && (result.spike || !is_finite(result))) report(result);
    if (result.spike && config_.spikes.action == SpikeAction::rewind) return rewind(result);
    if (result.abandoned) stop_at(result);
    life_tokens_ += static_cast<double>(plan_.tokens_per_step);
    ++interval_steps_;
    if (result.loss && std::isfinite(*result.loss)) summary_.final_loss = result.loss;
    if (result.step == 1 || is_due(result.step, config_.log_every, config_.steps)) log_step(result, progress);
    if (!result.layers.empty()) write_layers(result);
    check_step(result);
    if (!result.skipped) good_ = saved_;  // loss and gradient of what it holds, or of what came of it, are numbers
    if (::isatty(STDERR_FILENO)) progress.advance(1);
    // While gradients are not finite the weights may be ruined: what was saved before is kept.
    if (!in_doubt_ && saves_after(result.step)) save();
    evaluate();
    energy_.joules();  // its counters wrap
  }

  bool saves_after(int64_t step) const {
    return is_due(step, config_.save_every, config_.steps) || is_due(step, config_.keep_every, config_.steps) ||
           (config_.keep_best && is_due(step, config_.val_every, config_.steps));
  }

  std::string place_of(int64_t step) const {
    const int64_t first = trainer_.first_sample(step);
    return fmt::format("step {} (samples {} to {})", step, first, first + config_.batch - 1);
  }

  // The state as it stands is saved, so that the same command tries again from here, unless the last loss or gradient
  // was not finite.
  [[noreturn]] void stop(int64_t step, const std::string& reason, const std::string& message) {
    if (!in_doubt_ && trainer_.steps_done() > saved_step_) save();
    if (!in_doubt_) good_ = saved_;
    Json stopped = record("stopped");
    stopped["reason"] = reason;
    stopped["first_sample"] = trainer_.first_sample(step);
    stopped["samples"] = config_.batch;
    metrics_.write(stopped);
    fail(ErrorCode::kInvalidArgument, "{}; training stops. {}", message, what_is_kept());
  }

  std::string what_is_kept() const {
    if (saved_.empty()) return "There is no checkpoint yet";
    if (good_.empty()) return fmt::format("The checkpoint {} may have the fault already", saved_.string());
    return fmt::format("The last good checkpoint is {}", good_.string());
  }

  // A loss that is not finite: the step changed nothing, but what came before it may have ruined the weights.
  [[noreturn]] void stop_at(const StepResult& result) {
    in_doubt_ = true;
    stop(result.step + 1, "the loss is not finite",
         fmt::format("{}: the loss is {}, at learning rate {:.3g}, gradient norm {}", place_of(result.step + 1),
                     *result.loss, result.learning_rate, *result.grad_norm));
  }

  // Says what is wrong with a step and leaves a dump of it.
  void report(const StepResult& result) {
    const int64_t step = result.abandoned ? result.step + 1 : result.step;
    const std::string reason = result.spike ? result.spike->message() : "the loss or the gradient is not finite";
    const Path dump = write_dump(options_.out, trainer_, step, result, reason, options_.decode);
    log_warn("{}: {}{}", place_of(step), reason,
             dump.empty() ? "" : fmt::format("; the batch is in {}", dump.string()));
    if (!result.spike || result.abandoned) return;  // what follows says it
    Json spike = record("spike");
    spike["reason"] = reason;
    spike["loss"] = result.loss;
    spike["grad_norm"] = result.grad_norm;
    spike["first_sample"] = trainer_.first_sample(step);
    spike["samples"] = config_.batch;
    if (result.skipped) spike["skipped"] = true;
    metrics_.write(spike);
  }

  // Goes back before a spike. A kill before the new checkpoint is there finds the old one, and comes to the same spike;
  // later ones, which an interrupt or an error has left, are gone by then, so that nothing goes on from them.
  void rewind(const StepResult& spike) {
    const int64_t step = spike.step + 1;
    const auto rewinds = static_cast<int64_t>(trainer_.rewinds().as_array().size());
    if (rewinds >= config_.spikes.max_rewinds) {
      in_doubt_ = !is_finite(spike);
      stop(step, "too many spikes",
           fmt::format("{}: {}, after {} rewinds (spikes.max_rewinds)", place_of(step), spike.spike->message(),
                       rewinds));
    }
    trainer_.rewind(rewind_target(), spike);
    metrics_.drop_after(trainer_.steps_done());
    for (const CheckpointInfo& info : store_.list()) {
      if (info.step > trainer_.steps_done()) std::filesystem::remove_all(info.path);
    }
    in_doubt_ = false;
    skipped_ = 0;
    save();
    if (!good_.empty() && !std::filesystem::exists(good_)) good_ = saved_;
    write_rewinds();
    const Json::Array& left_out = trainer_.rewinds().as_array().back().at("left_out").as_array();
    log_warn("back to step {}; samples {} to {} are left out", trainer_.steps_done(),
             left_out[0].as_int() * config_.batch, left_out[1].as_int() * config_.batch - 1);
  }

  // Where a rewind goes back to, the best first: checkpoints of the schedule, the newest first, then others, the oldest
  // first. An interrupt or an error saves at any step: a run that went on from there shall go back to the same step as
  // one that was never stopped.
  std::vector<CheckpointInfo> rewind_targets() const {
    std::vector<CheckpointInfo> scheduled, others;
    for (const CheckpointInfo& info : store_.list()) {
      if (info.step > trainer_.steps_done()) continue;
      (saves_after(info.step) ? scheduled : others).push_back(info);
    }
    std::reverse(scheduled.begin(), scheduled.end());
    scheduled.insert(scheduled.end(), others.begin(), others.end());
    return scheduled;
  }

  VerifiedCheckpoint rewind_target() const {
    for (const CheckpointInfo& info : rewind_targets()) {
      try {
        return VerifiedCheckpoint(info.path);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kBadFormat) throw;
        log_warn("{}; skipped", error.what());
      }
    }
    fail(ErrorCode::kBadFormat, "{}: there is no complete checkpoint to go back to",
         (options_.out / "checkpoints").string());
  }

  std::vector<int64_t> kept_steps() const {
    std::vector<int64_t> steps;
    if (best_) steps.push_back(*best_);
    if (config_.spikes.action != SpikeAction::rewind) return steps;
    if (const auto targets = rewind_targets(); !targets.empty()) steps.push_back(targets[0].step);
    return steps;
  }

  // What the state says of rewinds and the metrics do not yet.
  void write_rewinds() {
    const Json::Array& rewinds = trainer_.rewinds().as_array();
    for (auto i = static_cast<size_t>(metrics_.count("rewind")); i < rewinds.size(); ++i) {
      Json rewind = record("rewind");
      for (const auto& [key, value] : rewinds[i].as_object()) rewind[key] = value;
      metrics_.write(rewind);
    }
  }

  // Of the checkpoints that are there, the one of the lowest validation loss; the earliest of several.
  void update_best() {
    if (!config_.keep_best) return;
    std::set<int64_t> there;
    for (const CheckpointInfo& info : store_.list()) there.insert(info.step);
    std::optional<std::pair<int64_t, double>> best;
    for (const auto& [at, loss] : metrics_.validations()) {
      const auto step = static_cast<int64_t>(at);
      if (there.contains(step) && std::isfinite(loss) && (!best || loss < best->second)) best = {step, loss};
    }
    const Path marker = options_.out / "checkpoints" / "best.json";
    if (!best) {
      std::filesystem::remove(marker);
      best_.reset();
      return;
    }
    best_ = best->first;
    const Json json = Json::Object{{"step", best->first}, {"loss", best->second}};
    write_file_atomic(marker, json.dump() + "\n");
    store_.prune(trainer_.steps_done(), {config_.keep_last, config_.keep_every, kept_steps()});
    const auto is_best = [&](const CheckpointInfo& info) { return info.step == best_; };
    const auto left = store_.list();
    if (std::none_of(left.begin(), left.end(), is_best)) update_best();  // it was torn
  }

  void write_layers(const StepResult& result) {
    Json layers = record("layers");
    layers["layers"] = to_json(result.layers);
    metrics_.write(layers);
  }

  void check_step(const StepResult& result) {
    if (result.overflow)
      return log_debug("step {}: gradients beyond fp16; the loss scale becomes {}", result.step, *result.loss_scale);
    skipped_ = result.skipped ? skipped_ + 1 : 0;
    if (result.targets > 0) in_doubt_ = result.skipped && !is_finite(result);
    if (!result.skipped) return;
    ++skipped_in_all_;
    log_warn("{}: {}; the step changes nothing", place_of(result.step),
             result.targets == 0 ? "no target to learn"
             : is_finite(result) ? "it is a spike"
                                 : "the gradient is not finite");
    if (skipped_ == kMaxSkippedSteps) stop_after_nothing(result.step);
  }

  [[noreturn]] void stop_after_nothing(int64_t step) {
    const std::string what =
        skipped_ == 1 ? "the last step changed nothing" : fmt::format("{} steps in a row changed nothing", skipped_);
    stop(step, what, fmt::format("{}: {}{}", place_of(step), what, in_doubt_ ? ": the gradient is not finite" : ""));
  }

  void log_step(const StepResult& result, Progress& progress) {
    const double step_seconds = interval_seconds_ / static_cast<double>(interval_steps_);
    const double rate = static_cast<double>(plan_.tokens_per_step) / step_seconds;
    const double mfu = plan_.flops_per_step / step_seconds / peak_rate_;
    const ArenaStats memory = ctx_.arena->stats();
    interval_seconds_ = 0;
    interval_steps_ = 0;

    Json train = record("train");
    train["tokens"] = result.step * plan_.tokens_per_step;
    train["loss"] = result.loss;
    train["lr"] = result.learning_rate;
    train["grad_norm"] = result.grad_norm;
    train["targets"] = result.targets;
    if (result.skipped) train["skipped"] = true;
    if (result.loss_scale) train["loss_scale"] = result.loss_scale;
    train["tokens_per_second"] = rate;
    train["mfu"] = mfu;
    train["memory_peak"] = memory.total_peak;
    const Json costs = to_json(cost());
    for (const auto& [key, value] : costs.as_object()) train[key] = value;
    add_sources(train);
    metrics_.write(train);
    const std::string numbers = result.loss ? fmt::format("loss {:.4f}  lr {:.2e}  norm {:.2f}", *result.loss,
                                                          result.learning_rate, *result.grad_norm)
                                            : fmt::format("no targets  lr {:.2e}", result.learning_rate);
    progress.note(numbers);
    log_info("step {}/{}  {}  {} tok/s  mfu {:.0f}%  mem {}  eta {}", result.step, config_.steps, numbers,
             format_count(rate), 100 * mfu, format_bytes(static_cast<double>(memory.total_peak)),
             format_duration(step_seconds * static_cast<double>(config_.steps - result.step)));
  }

  // The targets of each of several sources so far.
  void add_sources(Json& train) const {
    if (trainer_.sources().size() == 1) return;
    Json tokens = Json::object();
    for (const RunSource& source : trainer_.sources()) tokens[source.name] = source.targets;
    train["tokens_by_source"] = tokens;
  }

  void save() {
    Json extra = Json::object();
    extra["run"] = file_.id();
    extra["seconds"] = seconds();
    extra["cost"] = to_json(cost());
    extra["version"] = options_.version;
    Json words = Json::array();
    for (const std::string& word : options_.command_line) words.push_back(word);
    extra["command"] = words;
    extra["metrics"] = metrics_.size();
    if (!earlier_.origin.is_null()) extra["origin"] = earlier_.origin;
    metrics_.sync();  // what a checkpoint goes on from must not be missing in the curve
    saving_ = true;
    try {
      saved_ = trainer_.save(store_, extra, kept_steps());
    } catch (const Error& error) {
      fail(error.code(), "{}; the state after step {} is not saved. {}", error.what(), trainer_.steps_done(),
           what_is_kept());
    }
    saving_ = false;
    saved_step_ = trainer_.steps_done();
    log_debug("saved {}", saved_.string());
  }

  // Validation and sample of this step, if they are due and not there yet. What an interrupt cuts short is made when
  // the run goes on.
  void evaluate() {
    const int64_t step = trainer_.steps_done();
    const std::vector<NamedSet>& sets = trainer_.data().val;
    for (size_t set = 0; set < sets.size() && is_due(step, config_.val_every, config_.steps); ++set) {
      if (!metrics_.has(val_kind(sets, set), step)) validate(step, set);
    }
    if (config_.sample_every > 0 && options_.sample && is_due(step, config_.sample_every, config_.steps) &&
        !metrics_.has("sample", step)) {
      write_sample(step);
    }
  }

  // A sample shows how training goes; it must not end it.
  void write_sample(int64_t step) {
    try {
      const std::string text = options_.sample(trainer_.model());
      if (interrupted()) {
        cut_short_ = true;
        return;
      }
      Json sample = record("sample");
      sample["text"] = text;
      metrics_.write(sample);
      log_info("sample at step {}:\n{}", step, text);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kIo) throw;  // the metrics cannot be written
      log_warn("no sample at step {}: {}", step, error.what());
    }
  }

  void validate(int64_t step, size_t set) {
    const std::optional<ValResult> result = trainer_.validate([](int64_t, int64_t) { return interrupted(); }, set);
    if (!result) {
      cut_short_ |= interrupted();
      return;
    }
    if (set == 0) summary_.final_val_loss = result->loss;
    const std::string name = val_kind(trainer_.data().val, set) == "val" ? "" : trainer_.data().val[set].name;
    Json val = record("val");
    if (!name.empty()) {
      val["set"] = name;
      summary_.validations.resize(std::max(summary_.validations.size(), set + 1));
      summary_.validations[set] = {name, *result};
    }
    val["loss"] = result->loss;
    val["bits_per_byte"] = result->bits_per_byte;
    val["targets"] = result->targets;
    metrics_.write(val);
    update_best();
    log_info("step {}/{}  validation loss{} {:.4f}{}", step, config_.steps, name.empty() ? "" : " of " + name,
             result->loss, result->bits_per_byte ? fmt::format("  {:.4f} bits a byte", *result->bits_per_byte) : "");
    metrics_.plot();
    if (std::isfinite(result->loss)) return;
    in_doubt_ = true;
    stop(step, "the validation loss is not finite",
         fmt::format("step {}: the validation loss is {}", step, result->loss));
  }

  const ExecContext& ctx_;
  Trainer& trainer_;
  const TrainConfig& config_;
  const RunOptions& options_;
  const Path data_;
  const Earlier earlier_;
  const int64_t first_step_;
  const RunPlan plan_;
  const double peak_rate_;
  CheckpointStore store_;
  MetricsLog metrics_;
  RunFile file_;
  EnergyMeter energy_;
  Stopwatch watch_, lap_;  // lap_: since time of training was counted last
  int64_t saved_step_ = 0;
  Path saved_;                   // the checkpoint of saved_step_; empty for none
  std::optional<int64_t> best_;  // the step of the checkpoint of the lowest validation loss
  Path good_;                    // the newest one that a good step came after; empty for none
  int skipped_ = 0;              // steps in a row
  bool in_doubt_ = false;        // the last loss or gradient was not finite
  bool saving_ = false;
  int64_t skipped_in_all_ = 0;
  bool cut_short_ = false;  // a validation or sample, by an interrupt
  double life_seconds_ = 0, life_tokens_ = 0, interval_seconds_ = 0;
  int64_t interval_steps_ = 0;
  RunSummary summary_;
};

}  // namespace

TrainConfig check_config(const TrainConfig& config, const TokenSetInfo& data) {
  const TrainConfig whole = config_for_data(config, data);
  for (const std::string& warning : config_warnings(whole)) log_warn("{}", warning);
  family_for(whole.model);
  check_optimizer_groups(whole);
  return whole;
}

namespace {

// The checkpoint of this run or, if there is none, of the one that it branches from.
void find_beginning(const RunOptions& options, RunStart& start) {
  if (!options.out.empty()) start.checkpoint = find_start(options);
  if (start.checkpoint && !has_origin(start.checkpoint->path, options)) {
    fail(ErrorCode::kAlreadyExists,
         "{} holds another run than one that begins with {}: --resume never --force replaces it", options.out.string(),
         (options.branch ? *options.branch : *options.init_from).string());
  }
  if (!options.branch || start.checkpoint) return;
  std::error_code error;
  const Path path = std::filesystem::canonical(*options.branch, error);
  if (error) fail(ErrorCode::kNotFound, "checkpoint '{}': {}", options.branch->string(), error.message());
  LOAM_CHECK(!lies_in(path, options.out / "checkpoints"),
             "{} is a checkpoint of the run in {}: a branch of it needs a directory of its own", path.string(),
             options.out.string());
  start.checkpoint = VerifiedCheckpoint(path);
  start.branches = true;
}

}  // namespace

RunStart check_run(const TrainConfig& config, const RunOptions& options) {
  RunStart start;
  find_beginning(options, start);
  start.data = open_run_data(config.data);
  start.config = check_config(config, start.data.train[0].set->info());
  check_run_data(start.config, start.data);
  return start;
}

namespace {

RunSummary train(const ExecContext& ctx, const RunStart& checked, const RunOptions& options) {
  const std::optional<VerifiedCheckpoint>& start = checked.checkpoint;
  Trainer trainer(ctx, checked.config, checked.data);
  Earlier earlier;
  if (start) {
    const Json extra = trainer.load(*start, options.allow_changed_config, checked.branches);
    earlier.checkpoint = start->path;
    if (const Json* seconds = extra.find("seconds")) earlier.seconds = seconds->as_double();
    if (const Json* cost = extra.find("cost")) earlier.cost = cost_from_json(*cost);
    // In another directory the curve begins anew.
    if (lies_in(start->path, options.out / "checkpoints")) {
      const Json* records = extra.find("metrics");  // younger than the format; a run says that it starts
      earlier.records = records ? records->as_int() : 1;
      if (const Json* id = extra.find("run")) earlier.id = id->as_string();
      if (const Json* origin = extra.find("origin")) earlier.origin = *origin;
    }
  } else if (options.init_from) {
    trainer.init_from(*options.init_from);
  }
  if (earlier.origin.is_null()) earlier.origin = origin_of(options);
  if (!earlier.origin.is_null()) {
    if (const Json* family = earlier.origin.find("family")) trainer.model().family = family->as_string();
  }
  if (start && !options.force && is_finished(trainer, options, *start)) {
    log_info("nothing is left to do: {} has its {} steps and their model", options.out.string(),
             trainer.config().steps);
    RunSummary done;
    done.steps = trainer.steps_done();
    done.seconds = earlier.seconds;
    done.id = earlier.id;
    done.cost = earlier.cost;
    return done;
  }
  // Up to here nothing was written but the lock.
  prepare_run_directory(options, start);
  write_file_atomic(options.out / "config.json", config_to_json(trainer.config()).dump(2) + "\n");
  for (const std::string& warning : data_warnings(trainer.config(), trainer.mixture())) log_warn("{}", warning);
  return Run(ctx, trainer, options, first_data_path(checked.config.data), earlier)();
}

}  // namespace

RunSummary run_training(const ExecContext& ctx, const TrainConfig& config, const RunOptions& options) {
  const RunLock lock(options.out);
  RunStart checked = check_run(config_for_device(config, ctx.device), options);
  checked.config = settle_micro_batch(ctx, checked.config, checked.checkpoint);
  try {
    return train(ctx, checked, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    const int64_t most = std::min(ctx.arena->stats().refused - 1, available_memory(ctx).value_or(INT64_MAX));
    fail(ErrorCode::kOutOfMemory, "{}. {}. {}", error.what(), memory_at_peak(ctx),
         memory_advice(ctx, checked.config, most));
  }
}

}  // namespace loam
