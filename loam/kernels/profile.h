// Where the time of a step goes: every kernel call in a context with a profile is timed and counted, with what it had
// to do. On a GPU the device's own marks give the times, so that the host runs ahead as ever; on the CPU the clock
// does.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "loam/tensor/dtype.h"

namespace loam {

class DeviceHandles;

// What a call has to do (loam/kernels/kernel_work.h).
struct KernelWork {
  std::string shape;         // what the time depends on: "1024 x 768 x 3072 NT"
  DType dtype = DType::f32;  // of its first operand
  double flops = 0;          // 0: it only moves memory
  double bytes = 0;          // that it reads and writes if every element goes to memory once
};

// The calls of a kernel with equal shape and dtype, all together.
struct KernelTime {
  std::string name, shape;
  DType dtype = DType::f32;
  int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
};

// What a device reaches at most, as measured on it (loam/train/peaks.h).
struct DevicePeaks {
  double f32_flops = 0, bf16_flops = 0;  // a second, of matrix products
  double bytes = 0;                      // a second, read and written by a copy
};
// Williams, Waterman and Patterson 2009: the time that a device with these peaks needs at least, as a share of the time
// that it took. Above 1 where operands come from a cache. 0 if nothing was counted.
double roofline_share(const KernelTime& kernel, const DevicePeaks& peaks);

// Not for several threads: the kernels of a context follow one another.
class KernelProfile {
 public:
  // Times are seconds since construction; marks are what number they were made as.
  struct Call {
    size_t kernel;   // in kernels()
    int32_t module;  // in modules()
    int64_t begin, end;
  };
  struct Phase {
    const char* name;
    int64_t begin, end;
  };

  // With the handles of a GPU's context; null: the host's clock.
  explicit KernelProfile(DeviceHandles* device = nullptr);
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  // What follows belongs to a phase of the step ("forward"), whose name lives as long as the profile; null: to none.
  void phase(const char* name);
  // The part of the model that works: "layers.3.attention". 0 is none. enter() goes into a part of the part at hand.
  int32_t module() const { return module_; }
  void set_module(int32_t module) { module_ = module; }
  void enter(std::string_view part);
  // A kernel's call. Kernels that call kernels count as one.
  bool in_call() const { return in_call_; }
  void begin_call(const char* name, const KernelWork& work);
  void end_call();

  // At the end of a step: waits for the device's work and reads the marks so far. Times are known from then on.
  void settle();
  // Calls and phases so far, those of warming up, count no more.
  void clear();

  double seconds_at(int64_t mark) const { return marks_[static_cast<size_t>(mark)]; }
  int64_t last_mark() const { return static_cast<int64_t>(marks_.size()) - 1; }  // -1: there is none
  std::span<const Call> calls() const { return std::span(calls_).subspan(first_call_); }
  std::span<const Phase> phases() const { return std::span(phases_).subspan(first_phase_); }
  const std::string& module_name(int32_t module) const { return modules_[static_cast<size_t>(module)]; }
  const KernelWork& work(const Call& call) const { return works_[call.kernel]; }
  const std::string& name(const Call& call) const { return names_[call.kernel]; }
  // Of all times, cleared ones too: calls begun, and one of them.
  int64_t calls_begun() const { return static_cast<int64_t>(calls_.size()); }
  const Call& call(int64_t index) const { return calls_[static_cast<size_t>(index)]; }
  const char* phase_name() const { return open_phase_ ? phases_.back().name : ""; }

  std::vector<KernelTime> times() const;  // largest first
  double total_seconds() const;

 private:
  int64_t mark();

  DeviceHandles* device_;
  std::chrono::steady_clock::time_point start_;
  std::vector<double> marks_;
  size_t settled_ = 0;  // marks whose times are known
  std::map<std::tuple<std::string, std::string, DType>, size_t> by_key_;
  std::vector<std::string> names_;
  std::vector<KernelWork> works_;  // by kernel
  std::vector<std::string> modules_ = {""};
  std::map<std::string, int32_t, std::less<>> by_module_;
  std::vector<Call> calls_;
  std::vector<Phase> phases_;
  size_t first_call_ = 0, first_phase_ = 0;
  int32_t module_ = 0;
  bool in_call_ = false, open_phase_ = false;
};

}  // namespace loam
