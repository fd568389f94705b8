#include "loam/kernels/profile.h"

#include <algorithm>

#include "loam/kernels/matmul.h"

namespace loam {

void KernelProfile::add(const char* name, std::string shape, double seconds) {
  KernelTime& time = times_[{name, shape}];
  time.name = name;
  time.shape = std::move(shape);
  ++time.calls;
  time.seconds += seconds;
}

std::vector<KernelTime> KernelProfile::times() const {
  std::vector<KernelTime> all;
  for (const auto& [key, time] : times_) all.push_back(time);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return all;
}

double KernelProfile::total_seconds() const {
  double sum = 0;
  for (const auto& [key, time] : times_) sum += time.seconds;
  return sum;
}

std::string kernel_shape(const MatmulArgs& args) {
  return fmt::format("{} x {} x {} {}{}{}", args.c.dim(0), args.c.dim(1), args.a.dim(args.transpose_a ? 0 : 1),
                     args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', args.accumulate ? " +" : "");
}

}  // namespace loam
