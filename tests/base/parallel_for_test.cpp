#include "loam/base/parallel_for.h"

#include <gtest/gtest.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "loam/base/error.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

namespace loam {
namespace {

using Range = std::tuple<int64_t, int64_t, int>;  // begin, end, thread

std::set<Range> ranges_of(int threads, int64_t count, int64_t grain) {
  std::mutex mutex;
  std::set<Range> ranges;
  parallel_for(threads, count, grain, [&](int64_t begin, int64_t end, int thread) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(ranges.emplace(begin, end, thread).second);
  });
  return ranges;
}

TEST(ParallelFor, RangesTileTheCountAndRespectTheGrain) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const int64_t count : {0, 1, 2, 5, 64, 1001}) {
      for (const int64_t grain : {1, 4, 2000}) {
        const auto ranges = ranges_of(threads, count, grain);
        EXPECT_LE(static_cast<int>(ranges.size()), threads);
        int64_t expected_begin = 0;
        std::set<int> numbers;
        for (const auto& [begin, end, thread] : ranges) {
          EXPECT_EQ(begin, expected_begin);
          EXPECT_GT(end, begin);
          EXPECT_TRUE(end == count || end - begin >= grain);
          EXPECT_TRUE(thread >= 0 && thread < threads && numbers.insert(thread).second);
          expected_begin = end;
        }
        EXPECT_EQ(expected_begin, count);
      }
    }
  }
}

TEST(ParallelFor, CutDoesNotDependOnWhereItIsCalled) {
  const auto outside = ranges_of(3, 100, 1);
  std::vector<std::set<Range>> inside(4);
  parallel_for(4, 4, 1, [&](int64_t begin, int64_t, int) { inside[begin] = ranges_of(3, 100, 1); });
  for (const auto& ranges : inside) EXPECT_EQ(ranges, outside);
}

TEST(ParallelFor, NestedCallsStayOnTheCallingThread) {
  std::atomic<int> calls = 0;
  parallel_for(3, 3, 1, [&](int64_t, int64_t, int) {
    const auto self = std::this_thread::get_id();
    parallel_for(4, 8, 1, [&](int64_t, int64_t, int) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++calls;
    });
    parallel_tasks(4, 5, [&](int64_t, int) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++calls;
    });
  });
  EXPECT_EQ(calls, 3 * (4 + 5));
}

TEST(ParallelFor, OneThreadDoesNotEnterOpenMp) {
  const auto self = std::this_thread::get_id();
  const auto check = [&] {
    EXPECT_EQ(std::this_thread::get_id(), self);
#ifdef _OPENMP
    EXPECT_EQ(omp_get_level(), 0);
#endif
  };
  parallel_for(1, 10, 1, [&](int64_t, int64_t, int) { check(); });
  parallel_tasks(1, 10, [&](int64_t, int) { check(); });
}

TEST(ParallelFor, LowestErrorIsRethrownAfterAllHaveEnded) {
  for (int repetition = 0; repetition < 50; ++repetition) {
    std::atomic<int> ended = 0;
    try {
      parallel_for(4, 4, 1, [&](int64_t begin, int64_t, int) {
        if (begin == 1) std::this_thread::sleep_for(std::chrono::microseconds(200));
        ++ended;
        if (begin > 0) fail(ErrorCode::kIo, "range {}", begin);
      });
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "range 1");
      EXPECT_EQ(ended, 4);
    }
  }
  // The loop is usable afterwards, and not taken for a nested one.
  EXPECT_EQ(ranges_of(4, 4, 1).size(), 4u);
}

TEST(ParallelFor, AnyExceptionTypeCrosses) {
  EXPECT_THROW(parallel_for(2, 2, 1, [](int64_t, int64_t, int) { throw 7; }), int);
  EXPECT_THROW(parallel_tasks(2, 9, [](int64_t, int) { throw std::bad_alloc(); }), std::bad_alloc);
}

TEST(ParallelFor, RefusesBadArguments) {
  const auto body = [](int64_t, int64_t, int) { FAIL(); };
  EXPECT_LOAM_ERROR(parallel_for(0, 1, 1, body), ErrorCode::kInvalidArgument, "threads is 0");
  EXPECT_LOAM_ERROR(parallel_for(1, -1, 1, body), ErrorCode::kInvalidArgument, "count -1");
  EXPECT_LOAM_ERROR(parallel_for(1, 1, 0, body), ErrorCode::kInvalidArgument, "grain 0");
}

TEST(ParallelFor, WorksWhenCalledFromSeveralThreads) {
  std::vector<int64_t> sums(4, 0);
  std::vector<std::thread> callers;
  for (int64_t& sum : sums) {
    callers.emplace_back([&sum] {
      std::vector<int64_t> partial(3, 0);
      for (int i = 0; i < 20; ++i) {
        parallel_for(3, 1000, 1, [&](int64_t begin, int64_t end, int thread) {
          for (int64_t k = begin; k < end; ++k) partial[thread] += k;
        });
      }
      for (const int64_t part : partial) sum += part;
    });
  }
  for (auto& caller : callers) caller.join();
  for (const int64_t sum : sums) EXPECT_EQ(sum, 20 * (1000 * 999 / 2));
}

TEST(ParallelTasks, EveryIndexOnceAndThreadNumbersAreExclusive) {
  for (const int threads : {1, 2, 5}) {
    for (const int64_t count : {0, 1, 3, 500}) {
      std::vector<std::atomic<int>> calls(count), busy(threads);
      parallel_tasks(threads, count, [&](int64_t index, int thread) {
        ASSERT_TRUE(thread >= 0 && thread < threads);
        EXPECT_EQ(busy[thread].fetch_add(1), 0);
        ++calls[index];
        busy[thread].fetch_sub(1);
      });
      for (const auto& call : calls) EXPECT_EQ(call, 1);
    }
  }
}

TEST(ParallelTasks, LowestErrorIsRethrown) {
  for (int repetition = 0; repetition < 50; ++repetition) {
    try {
      parallel_tasks(4, 100, [&](int64_t index, int) {
        if (index == 10) std::this_thread::sleep_for(std::chrono::microseconds(200));
        if (index >= 10) throw std::runtime_error("index " + std::to_string(index));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "index 10");
    }
  }
}

TEST(ParallelFor, AvailableCoresIsPositive) { EXPECT_GE(available_cores(), 1); }

TEST(ParallelFor, AvailableCoresAreNoMoreThanTheQuota) {
  const testing::TempDir root;
  for (const char* name : {"proc/self", "sys/fs/cgroup"}) std::filesystem::create_directories(root / name);
  const std::string where = root.path().string();
  const int all = available_cores(where.c_str());
  testing::write_quickly(root / "proc/self/cgroup", "0::/\n");
  testing::write_quickly(root / "sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(available_cores(where.c_str()), 1);
  testing::write_quickly(root / "sys/fs/cgroup/cpu.max", "900000000 100000\n");
  EXPECT_EQ(available_cores(where.c_str()), all);
}

}  // namespace
}  // namespace loam
