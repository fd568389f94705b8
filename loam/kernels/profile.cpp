#include "loam/kernels/profile.h"

#include <algorithm>
#include <limits>

#include "loam/kernels/kernel_table.h"
#include "loam/kernels/kernel_work.h"
#ifdef LOAM_HAS_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace loam {
namespace {

// Ranges for NVIDIA's own profilers, which do nothing while none is attached.
#ifdef LOAM_HAS_CUDA
void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }
#else
void begin_range(const char*) {}
void end_range() {}
#endif

}  // namespace

double roofline_share(const KernelTime& kernel, const DevicePeaks& peaks) {
  const double flops = kernel.dtype == DType::f32 ? peaks.f32_flops : peaks.bf16_flops;
  const double arithmetic = flops > 0 ? kernel.flops / flops : 0,
               memory = peaks.bytes > 0 ? kernel.bytes / peaks.bytes : 0;
  return kernel.seconds > 0 ? std::max(arithmetic, memory) / kernel.seconds : 0;
}

KernelProfile::KernelProfile(DeviceHandles* device) : device_(device), start_(std::chrono::steady_clock::now()) {
  if (device_) device_->clear_marks();
}
KernelProfile::~KernelProfile() {
  if (open_phase_) end_range();
}

// The device's marks have no time yet; the first after settle(), when the device has nothing to do, is reached at once.
int64_t KernelProfile::mark() {
  const bool known = !device_ || settled_ == marks_.size();
  if (device_) device_->mark();
  marks_.push_back(known ? std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()
                         : std::numeric_limits<double>::quiet_NaN());
  return last_mark();
}

void KernelProfile::phase(const char* name) {
  if (!name && !open_phase_) return;
  const int64_t now = mark();
  if (open_phase_) {
    phases_.back().end = now;
    end_range();
  }
  open_phase_ = name != nullptr;
  if (!open_phase_) return;
  phases_.push_back({name, now, now});
  begin_range(name);
}

void KernelProfile::enter(std::string_view part) {
  const std::string& outer = modules_[static_cast<size_t>(module_)];
  std::string path = outer.empty() ? std::string(part) : fmt::format("{}.{}", outer, part);
  const auto [place, fresh] = by_module_.try_emplace(std::move(path), static_cast<int32_t>(modules_.size()));
  if (fresh) modules_.push_back(place->first);
  module_ = place->second;
}

void KernelProfile::begin_call(const char* name, const KernelWork& work) {
  const auto [place, fresh] = by_key_.try_emplace({name, work.shape, work.dtype}, works_.size());
  if (fresh) {
    names_.emplace_back(name);
    works_.push_back(work);
  }
  in_call_ = true;
  begin_range(name);
  const int64_t begin = mark();
  calls_.push_back({place->second, module_, begin, begin});
}

void KernelProfile::end_call() {
  calls_.back().end = mark();
  end_range();
  in_call_ = false;
}

void KernelProfile::settle() {
  if (!device_) return;
  for (size_t i = settled_ + 1; i < marks_.size(); ++i)
    marks_[i] = marks_[settled_] + device_->seconds_between(0, static_cast<int64_t>(i - settled_));
  settled_ = marks_.size();
  device_->clear_marks();
}

void KernelProfile::clear() {
  first_call_ = calls_.size();
  first_phase_ = phases_.size();
}

std::vector<KernelTime> KernelProfile::times() const {
  std::vector<KernelTime> by_kernel(works_.size());
  for (const Call& call : calls()) {
    KernelTime& time = by_kernel[call.kernel];
    ++time.calls;
    time.seconds += seconds_at(call.end) - seconds_at(call.begin);
  }
  std::vector<KernelTime> all;
  for (size_t i = 0; i < by_kernel.size(); ++i) {
    const auto calls = static_cast<double>(by_kernel[i].calls);
    if (calls == 0) continue;
    const KernelWork& work = works_[i];
    all.push_back({names_[i], work.shape, work.dtype, by_kernel[i].calls, by_kernel[i].seconds, calls * work.flops,
                   calls * work.bytes});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return all;
}

double KernelProfile::total_seconds() const {
  double sum = 0;
  for (const Call& call : calls()) sum += seconds_at(call.end) - seconds_at(call.begin);
  return sum;
}

template <class Args>
void call_profiled(const ExecContext& ctx, const char* name, void (*function)(const ExecContext&, const Args&),
                   const Args& args) {
  KernelProfile& profile = *ctx.profile;
  if (profile.in_call()) return function(ctx, args);
  profile.begin_call(name, kernel_work(args));
  try {
    function(ctx, args);
  } catch (...) {
    profile.end_call();
    throw;
  }
  profile.end_call();
}
#define LOAM_KERNEL(name, Args) \
  template void call_profiled(const ExecContext&, const char*, void (*)(const ExecContext&, const Args&), const Args&);
#include "loam/kernels/kernels.def"
#undef LOAM_KERNEL

}  // namespace loam
