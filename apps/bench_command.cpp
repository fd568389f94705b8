// `loam bench train`: measures against the machine's own ceilings.
#include <CLI/CLI.hpp>
#include <memory>

#include "apps/command.h"
#include "bench/train_bench.h"
#include "loam/base/progress.h"

namespace loam {
namespace {

struct Options {
  std::string config, device = "cpu";
  std::vector<std::string> settings;
  int64_t steps = 5;
};

int bench(const Options& o, const CommonFlags& flags) {
  TrainConfig config = read_train_config(o.config, o.settings);
  if (config.model.vocab_size == 0) config.model.vocab_size = 8192;
  config.optimizer.warmup_steps = std::min(config.optimizer.warmup_steps, config.steps);
  config = derive(config);
  const ExecResources exec = make_exec_resources(parse_device(o.device), flags.threads);
  const TrainBenchResult result = bench_train(exec.context, config, o.steps);
  Json report, seconds = Json::array();
  for (double s : result.step_seconds) seconds.push_back(s);
  report["bench"] = "train";
  report["version"] = program_version();
  report["device"] = o.device;
  report["threads"] = flags.threads;
  report["parameters"] = result.parameters;
  report["step_seconds"] = result.median_seconds;
  report["steps"] = std::move(seconds);
  report["tokens_per_second"] = result.tokens_per_second;
  report["flops_per_second"] = result.flops_per_second;
  report["peak_bytes"] = result.peak_bytes;
  print(flags.json ? report.dump()
                   : fmt::format("{} parameters: {:.3f} s a step, {:.0f} tok/s, {:.1f} GFLOP/s, peak {}",
                                 result.parameters, result.median_seconds, result.tokens_per_second,
                                 result.flops_per_second * 1e-9, format_bytes(static_cast<double>(result.peak_bytes))));
  return 0;
}

}  // namespace

void add_bench_commands(CLI::App& app) {
  CLI::App* group = add_command_group(app, "bench", "Measure speed");
  auto o = std::make_shared<Options>();
  CLI::App* c = add_command(*group, "train", "Time of a whole training step on random tokens",
                            "loam bench train --config gpt2-124m --set batch=4 --steps 5",
                            [o](const CommonFlags& flags) { return bench(*o, flags); });
  c->add_option("--config", o->config, "recipe or file (default: the defaults)");
  c->add_option("--set", o->settings, "change a setting: key.sub=value")->take_all();
  c->add_option("--steps", o->steps, "timed steps")->check(CLI::PositiveNumber)->capture_default_str();
  c->add_option("--device", o->device, "where to run")->capture_default_str();
}

}  // namespace loam
