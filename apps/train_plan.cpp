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
std::vector<std::pair<std::string, double>> epochs_by_source(const TrainConfig& config,
                                                             const std::optional<Mixture>& mixture) {
  std::vector<std::pair<std::string, double>> sources;
  if (!mixture || mixture->size() == 1) return sources;
  for (const double epochs : epochs_of(config, *mixture)) {
    sources.emplace_back(mixture->name(static_cast<int64_t>(sources.size())), epochs);
  }
  return sources;
}

void print_memory(const ExecContext& ctx, const TrainConfig& config, const RunPlan& plan, const RunOptions& options) {
  const auto bytes = [](int64_t n) { return format_bytes(static_cast<double>(n)); };
  print("memory       " + plan.memory.str());
  print(fmt::format("             the process takes up to {} more: segments that are not full, the program itself",
                    bytes(Arena::Options().segment_bytes + kProgramBytes)));
  if (options.init_from) {
    print(fmt::format("             while it begins, {} for the model of --init-from too", bytes(4 * plan.parameters)));
  }
  print(fmt::format("available    {}: {}",
                    plan.available_bytes ? bytes(*plan.available_bytes) + " on " + memory_owner(ctx) : "unknown",
                    !plan.available_bytes ? "it may not fit"
                    : plan.fits()         ? "fits"
                                          : "does not fit; " + memory_advice(ctx, config, plan.available_bytes)));
}

}  // namespace

int print_run_plan(const ExecContext& ctx, const TrainConfig& given, const RunOptions& options, bool as_json) {
  const bool has_data = !first_data_path(given.data).empty();
  if (!has_data && given.model.vocab_size == 0)
    throw UsageError("--dry-run needs --data, or model.vocab_size in the configuration");
  TokenSetInfo data;
  TrainConfig config;
  std::optional<RunLock> lock;  // as the run: it shows whether the directory can be made and is free
  if (!options.out.empty()) lock.emplace(options.out);
  std::optional<Mixture> mixture;
  int64_t done = 0;  // steps of a run that goes on
  if (!has_data) {
    config = settle_micro_batch(ctx, check_config(given, data), {});
  } else {
    const RunStart start = check_run(given, options);
    config = settle_micro_batch(ctx, start.config, start.checkpoint);
    data = start.data.train[0].set->info();
    data.tokens = 0;
    for (const NamedSet& source : start.data.train) data.tokens += source.set->tokens();
    if (start.checkpoint) done = start.checkpoint->step;
    mixture.emplace(start.checkpoint ? Trainer::check_checkpoint(*start.checkpoint, config, start.data,
                                                                 options.allow_changed_config, start.branches)
                                     : make_mixture(config, start.data));
    for (const std::string& warning : data_warnings(config, *mixture)) log_warn("{}", warning);
  }
  lock.reset();
  RunPlan plan = Trainer::plan(ctx, config, data.tokens);
  plan.memory = predict_memory(ctx, config);
  // What the rest of a step leaves of the matrix product's rate.
  constexpr double kShareOfPeak = 0.6;
  const double rate = measure_matmul_rate(ctx, config.dtype) * kShareOfPeak;
  const double seconds = (plan.flops_per_step + plan.recomputed_flops_per_step) *
                         static_cast<double>(std::max<int64_t>(config.steps - done, 0)) / rate;
  const std::vector<std::pair<std::string, double>> sources = epochs_by_source(config, mixture);
  const RunCost cost = cost_of(config.price, seconds, {});
  if (as_json) {
    Json report(Json::Object{{"parameters", plan.parameters},
                             {"non_embedding_parameters", plan.non_embedding_parameters},
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
                             {"epochs_by_source", Json(Json::Object(sources.begin(), sources.end()))},
                             {"flops_per_step", plan.flops_per_step},
                             {"recomputed_flops_per_step", plan.recomputed_flops_per_step},
                             {"steps_done", done},
                             {"estimated_seconds", seconds}});
    const Json costs = to_json(cost);
    for (const auto& [key, value] : costs.as_object()) report[key] = value;
    print(report.dump());
    return plan.fits() ? 0 : 1;
  }
  const auto count = [](double n) { return format_count(n); };
  print(fmt::format("parameters   {} ({} without embeddings)", plan.parameters, plan.non_embedding_parameters));
  print_memory(ctx, config, plan, options);
  print(fmt::format("tokens       {} in {} steps of {}", count(static_cast<double>(plan.tokens)), config.steps,
                    plan.tokens_per_step));
  if (data.tokens > 0) {
    print(fmt::format("epochs       {:.2f} of {} tokens", plan.epochs, count(static_cast<double>(data.tokens))));
  }
  for (const auto& [name, epochs] : sources) print(fmt::format("             {:.2f} of {}", epochs, name));
  print(fmt::format("compute      {}FLOP a step, {}FLOP in all", count(plan.flops_per_step) + " ",
                    count(plan.flops_per_step * static_cast<double>(config.steps)) + " "));
  if (plan.recomputed_flops_per_step > 0) {
    print(fmt::format("             and {}FLOP a step (+{:.0f} %) that recompute adds; mfu does not count them",
                      count(plan.recomputed_flops_per_step) + " ",
                      100 * plan.recomputed_flops_per_step / plan.flops_per_step));
  }
  print(fmt::format("time         about {}{}, at {:.0f} % of this machine's matrix product ({}FLOP/s)",
                    format_duration(seconds),
                    done > 0 ? fmt::format(" for the {} steps that are left", config.steps - done) : "",
                    100 * kShareOfPeak, count(rate / kShareOfPeak) + " "));
  if (const std::string text = to_string(cost); !text.empty()) print("cost         " + text);
  return plan.fits() ? 0 : 1;
}

}  // namespace loam
