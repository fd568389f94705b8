#include "loam/base/parallel_for.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "loam/base/cgroup.h"
#include "loam/base/error.h"

namespace loam {
namespace {

// True while this thread runs a piece of a parallel loop: a nested loop then stays on it.
thread_local bool inside_parallel = false;

// Keeps the exception of the lowest index. No exception may leave a parallel region, so every piece runs inside
// guard().
class FirstError {
 public:
  template <class Function>
  void guard(int64_t index, Function&& function) {
    try {
      function();
    } catch (...) {
      failed_.store(true, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (index < index_) {
        index_ = index;
        error_ = std::current_exception();
      }
    }
  }
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  int64_t index_ = std::numeric_limits<int64_t>::max();
  std::exception_ptr error_;
};

// Calls piece(i) for i of [0, count), each on a thread of its own where the system gives that many.
// REQUIRES: piece does not throw.
template <class Piece>
void run_pieces(int count, const Piece& piece) {
  if (count <= 1 || inside_parallel) {
    for (int i = 0; i < count; ++i) piece(i);
    return;
  }
  const auto marked = [&](int i) {
    inside_parallel = true;
    piece(i);
    inside_parallel = false;
  };
#ifdef LOAM_STD_THREADS
  std::vector<std::thread> threads;
  threads.reserve(count);
  int started = 1;
  try {
    for (; started < count; ++started) threads.emplace_back(marked, started);
  } catch (const std::system_error&) {
    // No more threads to be had: the caller runs what is left.
  }
  marked(0);
  for (int i = started; i < count; ++i) marked(i);
  for (auto& thread : threads) thread.join();
#else
#pragma omp parallel for num_threads(count) schedule(static, 1)
  for (int i = 0; i < count; ++i) marked(i);
#endif
}

}  // namespace

int available_cores(const char* root) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const bool known = sched_getaffinity(0, sizeof mask, &mask) == 0;
  const int64_t cores = known ? CPU_COUNT(&mask) : std::thread::hardware_concurrency();
  return static_cast<int>(std::max<int64_t>(1, std::min(cores, cpu_quota(root).value_or(cores))));
}

namespace detail {

void parallel_for(int threads, int64_t count, int64_t grain, ParallelBody body, void* context) {
  LOAM_CHECK(threads >= 1, "parallel_for: threads is {}, must be at least 1", threads);
  LOAM_CHECK(count >= 0 && grain >= 1, "parallel_for: count {} and grain {} must be at least 0 and 1", count, grain);
  if (count == 0) return;
  const int64_t size = std::max(grain, (count - 1) / threads + 1);
  const int pieces = static_cast<int>((count - 1) / size + 1);
  if (pieces == 1) return body(context, 0, count, 0);
  FirstError errors;
  run_pieces(pieces, [&](int piece) {
    const int64_t begin = piece * size;
    errors.guard(piece, [&] { body(context, begin, std::min(size, count - begin) + begin, piece); });
  });
  errors.rethrow();
}

void parallel_tasks(int threads, int64_t count, void (*body)(void* context, int64_t index, int thread), void* context) {
  LOAM_CHECK(threads >= 1, "parallel_tasks: threads is {}, must be at least 1", threads);
  LOAM_CHECK(count >= 0, "parallel_tasks: count is {}, must not be negative", count);
  const int pieces = static_cast<int>(std::min<int64_t>(threads, count));
  std::atomic<int64_t> next = 0;
  FirstError errors;
  // Indices are handed out in order, so every index below one that threw has been started: stopping early keeps the
  // lowest error.
  run_pieces(pieces, [&](int thread) {
    while (!errors.failed()) {
      const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) break;
      errors.guard(index, [&] { body(context, index, thread); });
    }
  });
  errors.rethrow();
}

}  // namespace detail
}  // namespace loam
