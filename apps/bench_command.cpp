// `loam bench train|kernels`: measures against the machine's own ceilings.
#include <memory>

#include "apps/commands.h"
#include "apps/options.h"
#include "bench/kernels_bench.h"
#include "bench/train_bench.h"
#include "loam/train/peaks.h"

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
  if (o.profile) {
    const Json profile = profile_kernels(*result.profile);
    for (const char* part : {"peaks", "kernel_seconds", "between_seconds", "phases", "kernels"})
      report[part] = profile.at(part);
  }
  if (o.profile && !flags.json) write_output(profile_table(*result.profile));
  print(flags.json ? report.dump()
                   : fmt::format("{} parameters: {:.3f} s a step, {:.0f} tok/s, {:.1f} GFLOP/s, peak {}",
                                 result.parameters, result.median_seconds, result.tokens_per_second,
                                 result.flops_per_second * 1e-9, format_bytes(static_cast<double>(result.peak_bytes))));
  return 0;
}

struct KernelsOptions {
  std::string dtype = "f32", only, device = "cpu";
  double seconds = 0.3;
};

// One line for each kernel.
int bench_kernels(const KernelsOptions& o, const CommonFlags& flags) {
  const ExecResources exec = make_exec_resources(parse_device(o.device), flags.threads);
  const DevicePeaks peaks = measure_peaks(exec.context);
  KernelsBenchOptions options{parse_dtype(o.dtype), o.only, o.seconds, kernels_bench_sizes(exec.context.device.kind)};
  bench_kernels(exec.context, options, [&](const KernelsBenchResult& r) {
    const KernelTime time{r.kernel, r.work.shape, r.work.dtype, 1, r.median_seconds, r.work.flops, r.work.bytes};
    const double flops = r.work.flops / r.median_seconds, bytes = r.work.bytes / r.median_seconds;
    const double share = roofline_share(time, peaks);
    Json report = report_of("kernels", flags);
    report["device"] = o.device;
    report["name"] = r.name;
    report["kernel"] = r.kernel;
    report["variant"] = r.variant;
    report["shape"] = r.work.shape;
    report["dtype"] = dtype_name(r.work.dtype);
    report["seconds"] = r.median_seconds;
    report["best_seconds"] = r.best_seconds;
    report["flops_per_second"] = flops;
    report["bytes_per_second"] = bytes;
    report["roofline"] = share;
    report["rotated_bytes"] = options.sizes.rotated;
    report["calls"] = r.calls;
    print(flags.json ? report.dump()
                     : fmt::format("{:<22} {:<6} {:10.1f} us {:9.1f} GFLOP/s {:7.1f} GB/s {:5.1f} % of roof  {} {}",
                                   r.name, r.variant, r.median_seconds * 1e6, flops * 1e-9, bytes * 1e-9, 100 * share,
                                   r.work.shape, dtype_name(r.work.dtype)));
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
  add_device(c, k->device);
}

}  // namespace loam
