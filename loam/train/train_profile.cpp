#include "loam/train/train_profile.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "loam/base/clock.h"
#include "loam/base/progress.h"
#include "loam/tensor/device_memory.h"
#include "loam/train/peaks.h"

namespace loam {
namespace {

constexpr size_t kTensors = 100;      // of the peak that are listed
constexpr double kSmallest = 0.0005;  // share of a step below which a kernel has no line of its own

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

struct PhaseTime {
  std::string name;
  double seconds = 0;
};
// In order of first appearance.
std::vector<PhaseTime> phase_times(const KernelProfile& profile) {
  std::vector<PhaseTime> times;
  for (const KernelProfile::Phase& phase : profile.phases()) {
    auto time = std::find_if(times.begin(), times.end(), [&](const PhaseTime& t) { return t.name == phase.name; });
    if (time == times.end()) time = times.insert(times.end(), {phase.name, 0});
    time->seconds += profile.seconds_at(phase.end) - profile.seconds_at(phase.begin);
  }
  return times;
}

using BytesByKind = std::array<int64_t, kMemoryKinds>;

// Calls visit(index, event, bytes by kind after it) for each event, those before the profiled steps too.
template <class Visit>
void walk_memory(const MemoryProfile& memory, Visit&& visit) {
  BytesByKind bytes{};
  for (size_t i = 0; i < memory.events().size(); ++i) {
    const MemoryProfile::Event& event = memory.events()[i];
    const MemoryProfile::Block& block = memory.block(event.block);
    bytes[static_cast<size_t>(block.kind)] += event.taken ? block.bytes : -block.bytes;
    visit(i, event, bytes);
  }
}

double time_of(const TrainProfile& profile, const MemoryProfile::Event& event) {
  return event.mark < 0 ? 0 : profile.kernels.seconds_at(event.mark);
}

Json by_kind(const BytesByKind& bytes) {
  Json json = Json::object();
  for (size_t kind = 0; kind < bytes.size(); ++kind) json[memory_kind_name(MemoryKind(kind))] = bytes[kind];
  return json;
}

Json describe(const TrainProfile& profile, const MemoryProfile::Block& block) {
  const KernelProfile& kernels = profile.kernels;
  Json json = Json::Object{{"kind", memory_kind_name(block.kind)}, {"bytes", block.bytes}};
  Json shape = Json::array();
  for (const int64_t size : block.shape) shape.push_back(size);
  json["shape"] = shape;
  json["dtype"] = dtype_name(block.dtype);
  json["module"] = kernels.module_name(block.module);
  json["kernel"] = block.call < kernels.calls_begun() ? Json(kernels.name(kernels.call(block.call))) : Json();
  json["phase"] = block.phase;
  return json;
}

std::string time_line(double seconds, double share, const std::string& what) {
  return fmt::format("{:10.3f} ms  {:5.1f} %  {}\n", 1e3 * seconds, 100 * share, what);
}

// A unit of trace.json: microseconds.
Json span_event(const std::string& name, int64_t track, double begin, double end, Json args) {
  return Json::Object{{"name", name},           {"ph", "X"},         {"pid", 1},
                      {"tid", track},           {"ts", 1e6 * begin}, {"dur", 1e6 * (end - begin)},
                      {"args", std::move(args)}};
}

Json name_event(const char* kind, int64_t track, const std::string& name) {
  return Json::Object{{"name", kind}, {"ph", "M"}, {"pid", 1}, {"tid", track}, {"args", Json::Object{{"name", name}}}};
}

}  // namespace

TrainProfile::TrainProfile(const ExecContext& ctx)
    : device(ctx.device.kind == DeviceKind::cpu ? "cpu" : device_properties(ctx.device).name),
      peaks(measure_peaks(ctx)),
      kernels(ctx.handles),
      memory(*ctx.arena, kernels) {}

std::unique_ptr<TrainProfile> profile_training(const ExecContext& context, const TrainConfig& config, TrainingData data,
                                               int64_t steps, int64_t warm_up) {
  auto profile = std::make_unique<TrainProfile>(context);
  context.arena->reset_peak();  // the measured peaks took buffers
  profile->tokens_per_step = config.batch * config.data.length;
  ExecContext ctx = context;
  ctx.profile = &profile->kernels;
  profile->kernels.phase("set-up");
  Trainer trainer(ctx, config, std::move(data));
  for (int64_t step = -warm_up; step < steps; ++step) {
    if (ctx.handles) ctx.handles->synchronize();
    profile->kernels.settle();
    if (step == 0) {
      profile->kernels.clear();
      profile->memory.clear();
    }
    const Stopwatch watch;
    trainer.step();
    if (ctx.handles) ctx.handles->synchronize();
    if (step >= 0) profile->step_seconds.push_back(watch.seconds());
  }
  profile->kernels.settle();
  profile->memory.stop();
  return profile;
}

std::string profile_table(const TrainProfile& profile) {
  const auto steps = static_cast<double>(profile.step_seconds.size());
  const double total = sum(profile.step_seconds), kernels = profile.kernels.total_seconds();
  std::string text = fmt::format("{}: {:.0f} GFLOP/s in f32, {:.0f} in bf16, {:.1f} GB/s at most; {} steps\n",
                                 profile.device, 1e-9 * profile.peaks.f32_flops, 1e-9 * profile.peaks.bf16_flops,
                                 1e-9 * profile.peaks.bytes, profile.step_seconds.size());
  text += "  time a step    share  calls   GFLOP/s    GB/s   of roof  kernel\n";
  double rest = 0;
  int64_t others = 0;
  for (const KernelTime& k : profile.kernels.times()) {
    if (k.seconds < kSmallest * total) {
      rest += k.seconds;
      ++others;
      continue;
    }
    text +=
        fmt::format("{:10.3f} ms  {:5.1f} % {:6.0f} {:>9} {:7.1f}  {:6.1f} %  {} {} {}\n", 1e3 * k.seconds / steps,
                    100 * k.seconds / total, static_cast<double>(k.calls) / steps,
                    k.flops > 0 ? fmt::format("{:.1f}", 1e-9 * k.flops / k.seconds) : "", 1e-9 * k.bytes / k.seconds,
                    100 * roofline_share(k, profile.peaks), k.name, k.shape, dtype_name(k.dtype));
  }
  if (others > 0) text += time_line(rest / steps, rest / total, fmt::format("{} other kernels", others));
  text += time_line(kernels / steps, kernels / total, "all kernels");
  text += time_line((total - kernels) / steps, 1 - kernels / total, "between kernels / host");
  text += time_line(total / steps, 1, "a step");
  for (const PhaseTime& phase : phase_times(profile.kernels))
    text += time_line(phase.seconds / steps, phase.seconds / total, phase.name);
  return text + fmt::format("peak of memory: {}\n", format_bytes(static_cast<double>(profile.memory.peak().bytes)));
}

Json profile_kernels(const TrainProfile& profile) {
  Json steps = Json::array(), kernels = Json::array(), phases = Json::object();
  for (const double seconds : profile.step_seconds) steps.push_back(seconds);
  for (const PhaseTime& phase : phase_times(profile.kernels)) phases[phase.name] = phase.seconds;
  for (const KernelTime& k : profile.kernels.times()) {
    kernels.push_back(Json::Object{{"name", k.name},
                                   {"shape", k.shape},
                                   {"dtype", dtype_name(k.dtype)},
                                   {"calls", k.calls},
                                   {"seconds", k.seconds},
                                   {"flops", k.flops},
                                   {"bytes", k.bytes},
                                   {"flops_per_second", k.flops / k.seconds},
                                   {"bytes_per_second", k.bytes / k.seconds},
                                   {"roofline", roofline_share(k, profile.peaks)}});
  }
  const double total = sum(profile.step_seconds), sum_of_kernels = profile.kernels.total_seconds();
  return Json::Object{{"device", profile.device},
                      {"peaks", Json::Object{{"f32_flops_per_second", profile.peaks.f32_flops},
                                             {"bf16_flops_per_second", profile.peaks.bf16_flops},
                                             {"bytes_per_second", profile.peaks.bytes}}},
                      {"tokens_per_step", profile.tokens_per_step},
                      {"step_seconds", steps},
                      {"kernel_seconds", sum_of_kernels},
                      {"between_seconds", total - sum_of_kernels},
                      {"phases", phases},
                      {"kernels", kernels}};
}

Json profile_memory(const TrainProfile& profile) {
  const MemoryProfile::Peak peak = profile.memory.peak();
  Json timeline = Json::array(), tensors = Json::array(), kinds = Json::array();
  for (int kind = 0; kind < kMemoryKinds; ++kind) kinds.push_back(memory_kind_name(MemoryKind(kind)));
  Json report = Json::Object{{"peak_bytes", peak.bytes}};
  walk_memory(profile.memory, [&](size_t i, const MemoryProfile::Event& event, const BytesByKind& bytes) {
    if (i == peak.event) {
      report["peak_seconds"] = time_of(profile, event);
      report["peak_phase"] = profile.memory.block(event.block).phase;
      report["peak_by_kind"] = by_kind(bytes);
    }
    if (i < profile.memory.first_event()) return;
    Json::Array point = {time_of(profile, event)};
    point.insert(point.end(), bytes.begin(), bytes.end());
    timeline.push_back(std::move(point));
  });
  for (size_t i = 0; i < std::min(kTensors, peak.blocks.size()); ++i)
    tensors.push_back(describe(profile, profile.memory.block(peak.blocks[i])));
  report["tensors"] = std::move(tensors);
  report["kinds"] = std::move(kinds);
  report["timeline"] = std::move(timeline);
  return report;
}

Json profile_trace(const TrainProfile& profile) {
  constexpr int64_t kPhases = 1, kKernels = 2;
  const KernelProfile& kernels = profile.kernels;
  Json events = Json::array();
  events.push_back(name_event("process_name", 0, "loam train on " + profile.device));
  events.push_back(name_event("thread_name", kPhases, "phases"));
  events.push_back(name_event("thread_name", kKernels, "kernels"));
  for (const KernelProfile::Phase& phase : kernels.phases()) {
    events.push_back(span_event(phase.name, kPhases, kernels.seconds_at(phase.begin), kernels.seconds_at(phase.end),
                                Json::object()));
  }
  for (const KernelProfile::Call& call : kernels.calls()) {
    const KernelWork& work = kernels.work(call);
    events.push_back(span_event(kernels.name(call), kKernels, kernels.seconds_at(call.begin),
                                kernels.seconds_at(call.end),
                                Json::Object{{"shape", work.shape},
                                             {"dtype", dtype_name(work.dtype)},
                                             {"module", kernels.module_name(call.module)},
                                             {"flops", work.flops},
                                             {"bytes", work.bytes}}));
  }
  walk_memory(profile.memory, [&](size_t i, const MemoryProfile::Event& event, const BytesByKind& bytes) {
    if (i + 1 < profile.memory.first_event()) return;
    events.push_back(Json::Object{
        {"name", "memory"}, {"ph", "C"}, {"pid", 1}, {"ts", 1e6 * time_of(profile, event)}, {"args", by_kind(bytes)}});
  });
  return Json::Object{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

void write_profile(const TrainProfile& profile, const Path& directory) {
  write_file_atomic(directory / "ops.json", profile_kernels(profile).dump(2) + "\n");
  write_file_atomic(directory / "memory.json", profile_memory(profile).dump() + "\n");
  write_file_atomic(directory / "trace.json", profile_trace(profile).dump() + "\n");
}

}  // namespace loam
