// `loam bench train|kernels`: measures against the machine's own ceilings.
#include <memory>

#include "apps/commands.h"
#include "apps/options.h"
#include "bench/kernels_bench.h"
#include "bench/train_bench.h"

namespace loam {
namespace {

Json report_of(const char* bench, const CommonFlags& flags) {
  return Json::Object{{"bench", bench}, {"version", program_version()}, {"threads", flags.threads}};
}

struct Options {
  std::string config, device = "cpu";
  std::vector<std::string> settings;
  int64_t steps = 5;
  bool profile = false;
};

// Kernels by the time that they take of a step, largest first; what is left lies between them.
void print_profile(const TrainBenchResult& result, double steps) {
  double sum = 0, total = 0;
  for (double seconds : result.step_seconds) total += seconds;
  for (const KernelTime& k : result.kernels) {
    sum += k.seconds;
    print(fmt::format("{:9.2f} ms a step {:6.1f} %  {:5.0f} x {:9.1f} us  {} {}", 1e3 * k.seconds / steps,
                      100 * k.seconds / total, static_cast<double>(k.calls) / steps,
                      1e6 * k.seconds / static_cast<double>(k.calls), k.name, k.shape));
  }
  print(fmt::format("{:9.2f} ms a step {:6.1f} %  between kernels", 1e3 * (total - sum) / steps,
                    100 * (total - sum) / total));
}

Json describe_profile(const TrainBenchResult& result) {
  Json::Array kernels;
  for (const KernelTime& k : result.kernels)
    kernels.push_back(Json::Object{{"kernel", k.name}, {"shape", k.shape}, {"calls", k.calls}, {"seconds", k.seconds}});
  return kernels;
}

int bench(const Options& o, const CommonFlags& flags) {
  TrainConfig config = read_train_config(o.config, typed_settings(o.settings));
  if (config.model.vocab_size == 0) config.model.vocab_size = 8192;
  config.optimizer.warmup_steps = std::min(config.optimizer.warmup_steps, config.steps);
  config = derive(config);
  const ExecResources exec = make_exec_resources(parse_device(o.device), flags.threads);
  const TrainBenchResult result = bench_train(exec.context, config, o.steps, o.profile);
  Json report = report_of("train", flags), seconds = Json::array();
  for (double s : result.step_seconds) seconds.push_back(s);
  report["device"] = o.device;
  report["parameters"] = result.parameters;
  report["step_seconds"] = result.median_seconds;
  report["steps"] = std::move(seconds);
  report["tokens_per_second"] = result.tokens_per_second;
  report["flops_per_second"] = result.flops_per_second;
  report["peak_bytes"] = result.peak_bytes;
  if (o.profile) report["kernels"] = describe_profile(result);
  if (o.profile && !flags.json) print_profile(result, static_cast<double>(o.steps));
  print(flags.json ? report.dump()
                   : fmt::format("{} parameters: {:.3f} s a step, {:.0f} tok/s, {:.1f} GFLOP/s, peak {}",
                                 result.parameters, result.median_seconds, result.tokens_per_second,
                                 result.flops_per_second * 1e-9, format_bytes(static_cast<double>(result.peak_bytes))));
  return 0;
}

struct KernelsOptions {
  std::string dtype = "f32", only;
  double seconds = 0.3;
};

// One line for each kernel.
int bench_kernels(const KernelsOptions& o, const CommonFlags& flags) {
  const ExecResources exec = make_exec_resources({}, flags.threads);
  bench_kernels(exec.context, {parse_dtype(o.dtype), o.only, o.seconds}, [&](const KernelsBenchResult& r) {
    Json report = report_of("kernels", flags);
    report["dtype"] = o.dtype;
    report["op"] = r.op;
    report["variant"] = r.variant;
    report["median_seconds"] = r.median_seconds;
    report["best_seconds"] = r.best_seconds;
    report["flops_per_second"] = r.flops / r.median_seconds;
    report["bytes_per_second"] = r.bytes / r.median_seconds;
    report["calls"] = r.calls;
    print(flags.json ? report.dump()
                     : fmt::format("{:<20} {:<6} {:10.1f} us {:8.1f} GFLOP/s {:6.1f} GB/s", r.op, r.variant,
                                   r.median_seconds * 1e6, r.flops / r.median_seconds * 1e-9,
                                   r.bytes / r.median_seconds * 1e-9));
  });
  return 0;
}

}  // namespace

void add_bench_commands(Command& program) {
  Command group = program.add_group("bench", "Measure speed");
  auto o = std::make_shared<Options>();
  Command c = group.add_command("train", "Time of a whole training step on random tokens",
                                "loam bench train --config gpt2-124m --set batch=4 --steps 5",
                                [o](const CommonFlags& flags) { return bench(*o, flags); });
  c.add_option("--config", o->config, "recipe or file (default: the defaults)");
  c.add_option("--set", o->settings, "change a setting: key.sub=value");
  add_integer(c, "--steps", o->steps, "timed steps", 1, 1 << 20);
  c.add_flag("--profile", o->profile, "also the time of each kernel by shape");
  add_device(c, o->device);

  auto k = std::make_shared<KernelsOptions>();
  c = group.add_command("kernels", "Time of each kernel of a step, at the sizes of GPT-2 124M",
                        "loam bench kernels --dtype bf16 --only layer_norm",
                        [k](const CommonFlags& flags) { return bench_kernels(*k, flags); });
  add_dtype(c, k->dtype, "compute dtype");
  c.add_option("--only", k->only, "kernels whose name begins so");
  add_number(c, "--seconds", k->seconds, "for each kernel, at least", 0, 3600, true);
}

}  // namespace loam
