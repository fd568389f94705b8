// Where the time of a step goes: every kernel that runs in a context with a profile is timed and counted by name and
// shape.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace loam {

struct MatmulArgs;

struct KernelTime {
  std::string name, shape;  // shape: what the time depends on, "" where it was not asked for
  int64_t calls = 0;
  double seconds = 0;
};

// Not for several threads: the kernels of a context follow one another.
class KernelProfile {
 public:
  void add(const char* name, std::string shape, double seconds);
  void clear() { times_.clear(); }
  // Largest first.
  std::vector<KernelTime> times() const;
  double total_seconds() const;

 private:
  std::map<std::pair<std::string, std::string>, KernelTime> times_;
};

// "1024 x 768 x 3072 TN" (m, n, k; N or T for a and b as they are stored) with "+" where it adds to c; "" for kernels
// whose time follows from the step alone.
std::string kernel_shape(const MatmulArgs& args);
template <class Args>
std::string kernel_shape(const Args&) {
  return {};
}

}  // namespace loam
