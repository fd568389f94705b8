#include "apps/train_plan.h"

#include "apps/command.h"
#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/train/memory.h"
#include "loam/train/run_data.h"
#include "loam/train/run_directory.h"

namespace loam {
namespace {

constexpr int64_t kProgramBytes = int64_t{40} << 20;  // code, libraries and heap, as seen

// Of several sources.
std::vector<std::pair<std::string, double>> epochs_by_source(const TrainConfig& config, const Mixture& mixture) {
  std::vector<std::pair<std::string, double>> sources;
  if (mixture.size() == 1) return sources;
  for (const double epochs : epochs_of(config, mixture)) {
    sources.emplace_back(mixture.name(static_cast<int64_t>(sources.size())), epochs);
  }
  return sources;
}

void print_memory(const ExecContext& ctx, const TrainConfig& config, const RunPlan& plan) {
  const auto bytes = [](int64_t n) { return format_bytes(static_cast<double>(n)); };
  print("memory       " + plan.memory.str());
  print(fmt::format("             the process takes up to {} more: segments that are not full, the program itself",
                    bytes(Arena::Options().segment_bytes + kProgramBytes)));
  print(fmt::format("available    {}: {}",
                    plan.available_bytes ? bytes(*plan.available_bytes) + " on " + memory_owner(ctx) : "unknown",
                    !plan.available_bytes ? "it may not fit"
                    : plan.fits()         ? "fits"
                                          : "does not fit; " + memory_advice(ctx, config, plan.available_bytes)));
}

// What the rest of a step leaves of the matrix product's rate.
constexpr double kShareOfPeak = 0.6;

struct DryRun {
  TrainConfig config;
  RunPlan plan;
  int64_t data_tokens = 0;                              // of the sources together
  int64_t done = 0;                                     // steps of a run that goes on
  std::vector<std::pair<std::string, double>> sources;  // epochs of each, where there are several
  std::optional<double> rate, seconds;                  // none of a GPU that is not here
  RunCost cost;
};

// Makes the checks of the run.
DryRun dry_run(const ExecContext& ctx, const TrainConfig& given, const RunOptions& options) {
  DryRun run;
  std::optional<RunLock> lock;  // as the run: it shows whether the directory can be made and is free
  if (!options.out.empty()) lock.emplace(options.out);
  if (first_data_path(given.data).empty()) {
    run.config = settle_micro_batch(ctx, check_config(given, {}), {});
  } else {
    const RunStart start = check_run(given, options);
    run.config = settle_micro_batch(ctx, start.config, start.checkpoint);
    for (const NamedSet& source : start.data.train) run.data_tokens += source.set->tokens();
    if (start.checkpoint) run.done = start.checkpoint->step;
    const Mixture mixture = start.checkpoint ? Trainer::check_checkpoint(*start.checkpoint, run.config, start.data,
                                                                         options.allow_changed_config, start.branches)
                                             : make_mixture(run.config, start.data);
    run.sources = epochs_by_source(run.config, mixture);
    for (const std::string& warning : data_warnings(run.config, mixture)) log_warn("{}", warning);
  }
  lock.reset();
  run.plan = Trainer::plan(ctx, run.config, run.data_tokens);
  run.plan.memory = predict_memory(ctx, run.config);
  if (ctx.arena->sparse()) return run;
  run.rate = measure_matmul_rate(ctx, run.config.dtype) * kShareOfPeak;
  run.seconds = (run.plan.flops_per_step + run.plan.recomputed_flops_per_step) *
                static_cast<double>(std::max<int64_t>(run.config.steps - run.done, 0)) / *run.rate;
  run.cost = cost_of(run.config.price, *run.seconds, {});
  return run;
}

Json to_json(const DryRun& run) {
  const RunPlan& plan = run.plan;
  Json report(Json::Object{{"parameters", plan.parameters},
                           {"non_embedding_parameters", plan.non_embedding_parameters},
                           {"micro_batch", run.config.micro_batch},
                           {"weight_bytes", plan.memory.weights},
                           {"gradient_bytes", plan.memory.gradients},
                           {"moment_bytes", plan.memory.moments},
                           {"activation_bytes", plan.memory.activations},
                           {"workspace_bytes", plan.memory.workspace},
                           {"available_bytes", plan.available_bytes ? Json(*plan.available_bytes) : Json()},
                           {"fits", plan.available_bytes ? Json(plan.fits()) : Json()},
                           {"tokens_per_step", plan.tokens_per_step},
                           {"tokens", plan.tokens},
                           {"epochs", plan.epochs},
                           {"epochs_by_source", Json(Json::Object(run.sources.begin(), run.sources.end()))},
                           {"flops_per_step", plan.flops_per_step},
                           {"recomputed_flops_per_step", plan.recomputed_flops_per_step},
                           {"steps_done", run.done},
                           {"estimated_seconds", run.seconds}});
  const Json costs = to_json(run.cost);
  for (const auto& [key, value] : costs.as_object()) report[key] = value;
  return report;
}

void print_time(const ExecContext& ctx, const DryRun& run) {
  if (!run.seconds) return print(fmt::format("time         unknown: {} is not here", device_name(ctx.device)));
  print(fmt::format("time         about {}{}, at {:.0f} % of this machine's matrix product ({} FLOP/s)",
                    format_duration(*run.seconds),
                    run.done > 0 ? fmt::format(" for the {} steps that are left", run.config.steps - run.done) : "",
                    100 * kShareOfPeak, format_count(*run.rate / kShareOfPeak)));
}

void print_plan(const ExecContext& ctx, const DryRun& run) {
  const RunPlan& plan = run.plan;
  const auto steps = static_cast<double>(run.config.steps);
  print(fmt::format("parameters   {} ({} without embeddings)", plan.parameters, plan.non_embedding_parameters));
  print_memory(ctx, run.config, plan);
  print(fmt::format("tokens       {} in {} steps of {}", format_count(static_cast<double>(plan.tokens)),
                    run.config.steps, plan.tokens_per_step));
  if (run.data_tokens > 0) {
    print(fmt::format("epochs       {:.2f} of {} tokens", plan.epochs,
                      format_count(static_cast<double>(run.data_tokens))));
  }
  for (const auto& [name, epochs] : run.sources) print(fmt::format("             {:.2f} of {}", epochs, name));
  print(fmt::format("compute      {} FLOP a step, {} FLOP in all", format_count(plan.flops_per_step),
                    format_count(plan.flops_per_step * steps)));
  if (plan.recomputed_flops_per_step > 0) {
    print(fmt::format("             and {} FLOP a step (+{:.0f} %) that recompute adds; mfu does not count them",
                      format_count(plan.recomputed_flops_per_step),
                      100 * plan.recomputed_flops_per_step / plan.flops_per_step));
  }
  print_time(ctx, run);
  if (const std::string text = to_string(run.cost); !text.empty()) print("cost         " + text);
}

}  // namespace

int print_run_plan(const ExecContext& ctx, const TrainConfig& given, const RunOptions& options, bool as_json) {
  if (first_data_path(given.data).empty() && given.model.vocab_size == 0)
    throw UsageError("--dry-run needs --data, or model.vocab_size in the configuration");
  const DryRun run = dry_run(ctx, config_for_device(given, ctx.device), options);
  as_json ? print(to_json(run).dump()) : print_plan(ctx, run);
  return run.plan.fits() ? 0 : 1;
}

}  // namespace loam
