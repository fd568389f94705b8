// Data-parallel loops over a fixed number of threads.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace loam {

namespace detail {
using ParallelBody = void (*)(void* context, int64_t begin, int64_t end, int thread);
void parallel_for(int threads, int64_t count, int64_t grain, ParallelBody body, void* context);
void parallel_tasks(int threads, int64_t count, void (*body)(void* context, int64_t index, int thread), void* context);
}  // namespace detail

// The number of cores this process may use, at least 1: those of its affinity mask, and no more than the quotas of its
// control groups allow. `root` is where /proc and /sys lie (for tests).
int available_cores(const char* root = "/");

// Cuts [0, count) into at most `threads` contiguous ranges, each of at least `grain` elements but the last, and calls
// body(begin, end, thread) for each, with thread in [0, threads). The cut is a pure function of (threads, count,
// grain). Nested calls run on the calling thread. Errors: the exception of the lowest range that threw is rethrown here
// after all have ended.
template <class Body>
void parallel_for(int threads, int64_t count, int64_t grain, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  detail::parallel_for(
      threads, count, grain,
      [](void* context, int64_t begin, int64_t end, int thread) {
        (*static_cast<Plain*>(context))(begin, end, thread);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// Calls body(index, thread) for every index of [0, count); threads take the next index when they are free. For uneven
// work whose result does not depend on who does it. Errors as above, with indices for ranges.
template <class Body>
void parallel_tasks(int threads, int64_t count, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  detail::parallel_tasks(
      threads, count, [](void* context, int64_t index, int thread) { (*static_cast<Plain*>(context))(index, thread); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace loam
