#include <unistd.h>

#include <cmath>

#include "loam/base/clock.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/data/token_set_check.h"
#include "loam/model/families/family.h"
#include "loam/train/metrics.h"
#include "loam/train/optimizer_groups.h"
#include "loam/train/run_directory.h"

namespace loam {
namespace {

constexpr int64_t kVerifiedTokens = int64_t{1} << 28;  // larger sets are checked as they are read
constexpr int kMaxSkippedSteps = 20;                   // in a row
constexpr double kPatience = 3;                        // seconds that an interrupted step may still take

// Opens the token sets of a run and checks them.
void open_token_sets(const Path& data, RunStart& start) {
  LOAM_CHECK(!data.empty(), "data.path is not set: a directory made by `loam data tokenize`");
  if (!std::filesystem::exists(data / "train")) {
    fail(ErrorCode::kNotFound, "{}: there is no train/ in it; `loam data tokenize` makes such a directory",
         data.string());
  }
  start.train = std::make_shared<TokenSet>(data / "train");
  if (std::filesystem::exists(data / "val")) start.val = std::make_shared<TokenSet>(data / "val");
  bool small = true;
  for (const auto& set : {start.train, start.val}) {
    if (!set) continue;
    small &= set->tokens() <= kVerifiedTokens;
    if (set->tokens() <= kVerifiedTokens) set->verify();
  }
  check_token_sets(data, *start.train, start.val.get(), small);
}

// NaN has no sign that would say anything.
std::string shown(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

bool is_due(int64_t step, int64_t every, int64_t last) { return step == last || (every > 0 && step % every == 0); }

// Whether a call would only write again what is there.
bool is_finished(const Trainer& trainer, const RunOptions& options, const CheckpointInfo& start, bool validates) {
  const TrainConfig& config = trainer.config();
  const int64_t step = trainer.steps_done();
  if (step < config.steps || !has_model_of(options.out, start)) return false;
  const auto missing = [&](const char* kind, int64_t every) {
    return is_due(step, every, config.steps) && !MetricsLog::has(options.out, kind, step);
  };
  return !(validates && missing("val", config.val_every)) &&
         !(config.sample_every > 0 && options.sample && missing("sample", config.sample_every));
}

// What earlier lives of the run left, besides the state of the trainer.
struct Earlier {
  Path checkpoint;  // that the run goes on from; empty for none
  double seconds = 0;
  int64_t records = 0;  // in metrics.jsonl when it was saved
};

class Run {
 public:
  Run(const ExecContext& ctx, Trainer& trainer, const RunOptions& options, const Path& data, const Earlier& earlier)
      : ctx_(ctx),
        trainer_(trainer),
        config_(trainer.config()),
        options_(options),
        data_(data),
        earlier_seconds_(earlier.seconds),
        first_step_(trainer.steps_done()),
        plan_(Trainer::plan(config_, 0)),
        peak_rate_(measure_matmul_rate(ctx, config_.dtype)),
        store_(options.out / "checkpoints"),
        metrics_(options.out, first_step_, earlier.records),
        saved_step_(first_step_),
        saved_(earlier.checkpoint) {
    ctx.arena->reset_peak();
  }

  RunSummary operator()() {
    const InterruptNotice notice(
        "interrupted: stopping after this step, with a checkpoint; a second signal stops at once");
    write_start();
    if (first_step_ > 0) evaluate();  // what a kill after the save cut off
    {
      Progress progress("train", config_.steps - first_step_, "steps");
      train(progress);
    }
    const int64_t steps = trainer_.steps_done() - first_step_;
    if (in_doubt_ || (steps > 0 && skipped_in_all_ == steps)) stop_after_nothing(trainer_.steps_done());
    if (skipped_in_all_ > 0) log_warn("{} of {} steps changed nothing", skipped_in_all_, steps);
    summary_.interrupted = trainer_.steps_done() < config_.steps || cut_short_;
    if (trainer_.steps_done() > saved_step_) save();
    metrics_.plot();
    write_model_directory(trainer_, options_.out, data_);
    summary_.steps = trainer_.steps_done();
    summary_.seconds = seconds();
    if (life_seconds_ > 0) summary_.tokens_per_second = life_tokens_ / life_seconds_;
    return summary_;
  }

 private:
  double seconds() const { return earlier_seconds_ + watch_.seconds(); }

  Json record(const char* kind) const {
    Json json = Json::object();
    json["kind"] = kind;
    json["step"] = trainer_.steps_done();
    json["time"] = seconds();
    return json;
  }

  void write_start() {
    Json start = record("start");
    start["version"] = options_.version;
    start["threads"] = ctx_.threads;
    start["parameters"] = plan_.parameters;
    start["tokens_per_step"] = plan_.tokens_per_step;
    Json words = Json::array();
    for (const std::string& word : options_.command_line) words.push_back(word);
    start["command"] = words;
    metrics_.write(start);
    log_info("{} parameters, {} tokens a step, {} steps{}", format_count(static_cast<double>(plan_.parameters)),
             plan_.tokens_per_step, config_.steps,
             first_step_ > 0 ? fmt::format(", going on after step {}", first_step_) : "");
  }

  // What an error finds trained is saved, if it is good.
  void train(Progress& progress) {
    try {
      while (trainer_.steps_done() < config_.steps && !interrupted()) train_step(progress);
    } catch (const Error& error) {
      if (in_doubt_ || saving_ || trainer_.steps_done() == saved_step_) throw;
      save();
      fail(error.code(), "{}; what was trained is in {}", error.what(), saved_.string());
    }
  }

  void train_step(Progress& progress) {
    const Stopwatch watch;
    std::optional<Stopwatch> waiting;  // since the interrupt
    const StepResult result = trainer_.step([&](int64_t done, int64_t all) {
      if (!interrupted()) return false;
      if (!waiting) waiting.emplace();
      const double rate = static_cast<double>(done) / watch.seconds();
      return waiting->seconds() > kPatience || (done > 0 && static_cast<double>(all - done) / rate > kPatience);
    });
    if (result.loss && !std::isfinite(*result.loss)) stop_at(result);
    if (result.abandoned) return log_info("step {} is given up: it would take long", result.step + 1);
    const double step_seconds = watch.seconds();
    life_seconds_ += step_seconds;
    life_tokens_ += static_cast<double>(plan_.tokens_per_step);
    interval_seconds_ += step_seconds;
    ++interval_steps_;
    if (result.loss) summary_.final_loss = result.loss;
    if (result.step == 1 || is_due(result.step, config_.log_every, config_.steps)) log_step(result, progress);
    check_step(result);
    if (!result.skipped) good_ = saved_;  // loss and gradient of what it holds, or of what came of it, are numbers
    if (::isatty(STDERR_FILENO)) progress.advance(1);
    // While gradients are not finite the weights may be ruined: what was saved before is kept.
    if (!in_doubt_ && is_due(result.step, config_.save_every, config_.steps)) save();
    evaluate();
  }

  int64_t first_sample(int64_t step) const { return config_.overfit_one_batch ? 0 : (step - 1) * config_.batch; }

  std::string place_of(int64_t step) const {
    const int64_t first = first_sample(step);
    return fmt::format("step {} (samples {} to {})", step, first, first + config_.batch - 1);
  }

  // The state as it stands is saved, so that the same command tries again from here, unless the last loss or gradient
  // was not finite.
  [[noreturn]] void stop(int64_t step, const std::string& reason, const std::string& message) {
    if (!in_doubt_ && trainer_.steps_done() > saved_step_) save();
    if (!in_doubt_) good_ = saved_;
    Json stopped = record("stopped");
    stopped["reason"] = reason;
    stopped["first_sample"] = first_sample(step);
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
                     shown(*result.loss), result.learning_rate, shown(*result.grad_norm)));
  }

  void check_step(const StepResult& result) {
    skipped_ = result.skipped ? skipped_ + 1 : 0;
    if (result.targets > 0) in_doubt_ = result.skipped;
    if (!result.skipped) return;
    ++skipped_in_all_;
    log_warn("{}: {}; the step changes nothing", place_of(result.step),
             result.targets == 0 ? "no target to learn" : "the gradient is not finite");
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
    train["tokens_per_second"] = rate;
    train["mfu"] = mfu;
    train["memory_peak"] = memory.total_peak;
    metrics_.write(train);
    const std::string numbers = result.loss ? fmt::format("loss {:.4f}  lr {:.2e}  norm {:.2f}", *result.loss,
                                                          result.learning_rate, *result.grad_norm)
                                            : fmt::format("no targets  lr {:.2e}", result.learning_rate);
    progress.note(numbers);
    log_info("step {}/{}  {}  {} tok/s  mfu {:.0f}%  mem {}  eta {}", result.step, config_.steps, numbers,
             format_count(rate), 100 * mfu, format_bytes(static_cast<double>(memory.total_peak)),
             format_duration(step_seconds * static_cast<double>(config_.steps - result.step)));
  }

  void save() {
    Json extra = Json::object();
    extra["seconds"] = seconds();
    extra["version"] = options_.version;
    Json words = Json::array();
    for (const std::string& word : options_.command_line) words.push_back(word);
    extra["command"] = words;
    extra["metrics"] = metrics_.size();
    metrics_.sync();  // what a checkpoint goes on from must not be missing in the curve
    saving_ = true;
    try {
      saved_ = trainer_.save(store_, extra);
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
    if (is_due(step, config_.val_every, config_.steps) && !metrics_.has("val", step)) validate(step);
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

  void validate(int64_t step) {
    const std::optional<ValResult> result = trainer_.validate([](int64_t, int64_t) { return interrupted(); });
    if (!result) {
      cut_short_ |= interrupted();
      return;
    }
    summary_.final_val_loss = result->loss;
    Json val = record("val");
    val["loss"] = result->loss;
    val["bits_per_byte"] = result->bits_per_byte;
    val["targets"] = result->targets;
    metrics_.write(val);
    log_info("step {}/{}  validation loss {:.4f}{}", step, config_.steps, result->loss,
             result->bits_per_byte ? fmt::format("  {:.4f} bits a byte", *result->bits_per_byte) : "");
    metrics_.plot();
    if (std::isfinite(result->loss)) return;
    in_doubt_ = true;
    stop(step, "the validation loss is not finite",
         fmt::format("step {}: the validation loss is {}", step, shown(result->loss)));
  }

  const ExecContext& ctx_;
  Trainer& trainer_;
  const TrainConfig& config_;
  const RunOptions& options_;
  const Path data_;
  const double earlier_seconds_;
  const int64_t first_step_;
  const RunPlan plan_;
  const double peak_rate_;
  CheckpointStore store_;
  MetricsLog metrics_;
  Stopwatch watch_;
  int64_t saved_step_ = 0;
  Path saved_;             // the checkpoint of saved_step_; empty for none
  Path good_;              // the newest one that a good step came after; empty for none
  int skipped_ = 0;        // steps in a row
  bool in_doubt_ = false;  // the last loss or gradient was not finite
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

RunStart check_run(const TrainConfig& config, const RunOptions& options) {
  RunStart start;
  if (!options.out.empty()) start.checkpoint = find_start(options);
  open_token_sets(config.data.path, start);
  start.config = check_config(config, start.train->info());
  Trainer::check_data(start.config, start.train, start.val);
  return start;
}

RunSummary run_training(const ExecContext& ctx, const TrainConfig& config, const RunOptions& options) {
  const RunLock lock(options.out);
  const RunStart checked = check_run(config, options);
  const std::optional<VerifiedCheckpoint>& start = checked.checkpoint;
  Trainer trainer(ctx, checked.config, checked.train, checked.val);
  Earlier earlier;
  if (start) {
    const Json extra = trainer.load(*start, options.allow_changed_config);
    earlier.checkpoint = start->path;
    if (const Json* seconds = extra.find("seconds")) earlier.seconds = seconds->as_double();
    // In another directory the curve begins anew.
    if (lies_in(start->path, options.out / "checkpoints")) {
      const Json* records = extra.find("metrics");  // younger than the format; a run says that it starts
      earlier.records = records ? records->as_int() : 1;
    }
  }
  if (start && !options.force && is_finished(trainer, options, *start, checked.val != nullptr)) {
    log_info("nothing is left to do: {} has its {} steps and their model", options.out.string(), config.steps);
    RunSummary done;
    done.steps = trainer.steps_done();
    done.seconds = earlier.seconds;
    return done;
  }
  // Up to here nothing was written but the lock.
  prepare_run_directory(options, start);
  write_file_atomic(options.out / "config.json", config_to_json(trainer.config()).dump(2) + "\n");
  return Run(ctx, trainer, options, config.data.path, earlier)();
}

}  // namespace loam
