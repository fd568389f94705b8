#include "loam/tensor/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "tests/harness/expect_error.h"

namespace loam {
namespace {

int64_t of(const ArenaStats& s, MemoryKind kind) { return s.bytes[static_cast<size_t>(kind)]; }
int64_t peak_of(const ArenaStats& s, MemoryKind kind) { return s.peak[static_cast<size_t>(kind)]; }

TEST(Arena, BlocksAreAlignedAndDistinct) {
  const auto arena = Arena::create({});
  std::map<void*, bool> seen;
  for (const int64_t bytes : {0, 0, 1, 63, 64, 65, 1000, 100 << 20}) {
    void* p = arena->allocate(bytes, MemoryKind::other);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    EXPECT_FALSE(seen[p]);
    seen[p] = true;
    std::memset(p, 1, static_cast<size_t>(bytes));
  }
  for (const auto& [p, unused] : seen) arena->release(p);
  EXPECT_EQ(arena->stats().total, 0);
  EXPECT_LOAM_ERROR(arena->allocate(-1, MemoryKind::other), ErrorCode::kInvalidArgument, "-1 bytes");
  EXPECT_LOAM_ERROR(arena->release(&seen), ErrorCode::kInternal, "does not hold");
  EXPECT_LOAM_ERROR(arena->release(seen.begin()->first), ErrorCode::kInternal, "does not hold");
}

TEST(Arena, SteadyStateAsksTheSystemForNothing) {
  const auto arena = Arena::create({}, {int64_t{1} << 20, 0});
  int64_t reserved = 0;
  for (int step = 0; step < 10; ++step) {
    std::vector<void*> blocks;
    for (int64_t size = 1000; size < 2000000; size *= 2)
      blocks.push_back(arena->allocate(size, MemoryKind::activations));
    if (step > 0) {
      EXPECT_EQ(arena->stats().reserved, reserved);
    }
    reserved = arena->stats().reserved;
    for (void* b : blocks) arena->release(b);
  }
}

TEST(Arena, NeighboursJoinAndTheBestFitIsTaken) {
  const int64_t segment = 1 << 20, quarter = segment / 4;
  const auto arena = Arena::create({}, {segment, segment});
  // AddressSanitizer builds keep a gap behind each block, so ask for a little less than a quarter.
  const int64_t size = quarter - 256;
  void* blocks[4];
  for (void*& b : blocks) b = arena->allocate(size, MemoryKind::workspace);
  for (const int i : {0, 2, 3, 1}) arena->release(blocks[i]);
  void* whole = arena->allocate(segment - 256, MemoryKind::workspace);  // only if all four were joined again
  arena->release(whole);

  void* large = arena->allocate(quarter * 2, MemoryKind::workspace);
  void* wall_a = arena->allocate(64, MemoryKind::workspace);
  void* small = arena->allocate(4096, MemoryKind::workspace);
  void* wall_b = arena->allocate(64, MemoryKind::workspace);
  arena->release(large);
  arena->release(small);
  EXPECT_EQ(arena->allocate(4000, MemoryKind::workspace), small);
  for (void* b : {wall_a, small, wall_b}) arena->release(b);
  EXPECT_EQ(arena->stats().total, 0);
}

TEST(Arena, CountsByKind) {
  const auto arena = Arena::create({});
  void* a = arena->allocate(1 << 20, MemoryKind::weights);
  void* b = arena->allocate(1 << 16, MemoryKind::activations);
  const auto both = arena->stats();
  EXPECT_GE(of(both, MemoryKind::weights), 1 << 20);
  EXPECT_LE(of(both, MemoryKind::weights), (1 << 20) + 128);
  EXPECT_GE(of(both, MemoryKind::activations), 1 << 16);
  EXPECT_EQ(both.total, of(both, MemoryKind::weights) + of(both, MemoryKind::activations));
  arena->release(b);
  EXPECT_EQ(of(arena->stats(), MemoryKind::activations), 0);
  EXPECT_EQ(peak_of(arena->stats(), MemoryKind::activations), of(both, MemoryKind::activations));
  EXPECT_EQ(arena->stats().total_peak, both.total);
  arena->reset_peak();
  EXPECT_EQ(peak_of(arena->stats(), MemoryKind::activations), 0);
  EXPECT_EQ(arena->stats().total_peak, of(both, MemoryKind::weights));
  arena->release(a);
  EXPECT_GE(arena->stats().reserved, 1 << 20);
}

TEST(Arena, LimitIsAClearErrorAndHoldsAfterwards) {
  const auto arena = Arena::create({}, {int64_t{64} << 20, int64_t{8} << 20});
  void* a = arena->allocate(int64_t{5} << 20, MemoryKind::weights);
  EXPECT_LOAM_ERROR(arena->allocate(int64_t{4} << 20, MemoryKind::activations), ErrorCode::kOutOfMemory,
                    "asked for 4.0 MiB of activations; in use: weights 5.0 MiB; reserved: 8.0 MiB; limit: 8.0 MiB");
  EXPECT_LOAM_ERROR(arena->allocate(int64_t{1} << 62, MemoryKind::cache), ErrorCode::kOutOfMemory, "cache");
  arena->release(arena->allocate(int64_t{2} << 20, MemoryKind::activations));
  arena->release(a);
  arena->release(arena->allocate(int64_t{7} << 20, MemoryKind::activations));
  EXPECT_LE(arena->stats().reserved, int64_t{8} << 20);
  EXPECT_LOAM_ERROR(Arena::create({})->allocate(int64_t{1} << 60, MemoryKind::cache), ErrorCode::kOutOfMemory,
                    "limit: none");
}

TEST(Arena, UnusedSegmentsMakeRoomUnderALimit) {
  const auto arena = Arena::create({}, {int64_t{1} << 20, int64_t{8} << 20});
  std::vector<void*> blocks;
  for (int i = 0; i < 7; ++i) blocks.push_back(arena->allocate((1 << 20) - 256, MemoryKind::cache));
  for (void* b : blocks) arena->release(b);
  arena->release(arena->allocate(int64_t{6} << 20, MemoryKind::cache));  // fits in no segment of 1 MiB
  EXPECT_LE(arena->stats().reserved, int64_t{8} << 20);
}

TEST(Arena, TenThousandRandomBlocksNeverOverlap) {
  const auto arena = Arena::create({}, {int64_t{1} << 20, 0});
  std::mt19937_64 engine(1);
  std::map<std::byte*, std::pair<int64_t, unsigned char>> live;  // size and fill
  const auto check = [](std::byte* p, int64_t size, unsigned char fill) {
    for (int64_t i = 0; i < size; ++i) {
      if (static_cast<unsigned char>(p[i]) != fill) return false;
    }
    return true;
  };
  for (int i = 0; i < 10000; ++i) {
    if (live.size() < 50 || engine() % 2 == 0) {
      const auto size = static_cast<int64_t>(engine() % (engine() % 10 == 0 ? 300000 : 3000));
      auto* p = static_cast<std::byte*>(arena->allocate(size, MemoryKind(engine() % kMemoryKinds)));
      const auto fill = static_cast<unsigned char>(engine());
      const auto after = live.lower_bound(p);
      ASSERT_TRUE(after == live.end() || p + size <= after->first);
      ASSERT_TRUE(after == live.begin() || std::prev(after)->first + std::prev(after)->second.first <= p);
      std::memset(p, fill, static_cast<size_t>(size));
      live[p] = {size, fill};
    } else {
      auto victim = std::next(live.begin(), static_cast<int64_t>(engine() % live.size()));
      ASSERT_TRUE(check(victim->first, victim->second.first, victim->second.second));
      arena->release(victim->first);
      live.erase(victim);
    }
  }
  for (const auto& [p, block] : live) {
    ASSERT_TRUE(check(p, block.first, block.second));
    arena->release(p);
  }
  const ArenaStats s = arena->stats();
  EXPECT_EQ(s.total, 0);
  for (const int64_t bytes : s.bytes) EXPECT_EQ(bytes, 0);
  // Everything was joined again: a block of a whole segment needs no new one.
  arena->release(arena->allocate((1 << 20) - 256, MemoryKind::other));
  EXPECT_EQ(arena->stats().reserved, s.reserved);
}

TEST(Arena, ManyThreads) {
  const auto arena = Arena::create({});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&arena, t] {
      for (int i = 0; i < 2000; ++i) {
        auto* p = static_cast<int*>(arena->allocate(64 + i, MemoryKind::workspace));
        *p = t;
        std::this_thread::yield();
        if (*p != t) std::abort();
        arena->release(p);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(arena->stats().total, 0);
}

}  // namespace
}  // namespace loam
