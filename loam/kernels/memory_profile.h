// What lies in an arena, block by block, while a profile runs: how much at each time, and what at the peak.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "loam/kernels/profile.h"
#include "loam/tensor/arena.h"

namespace loam {

// Times are those of the device's work: memory is taken and given back in order with it, so a block's time is that of
// the kernel call before. Who made a block is the next call, or the one within which it was taken: an op takes its
// results' memory just before it calls the kernel that writes them.
class MemoryProfile : public ArenaObserver {
 public:
  struct Block {
    int64_t bytes = 0;
    MemoryKind kind = MemoryKind::other;
    Shape shape;  // empty if it is no tensor's
    DType dtype = DType::u8;
    int64_t call = 0;  // who made it, if there was such a call: KernelProfile::call()
    int32_t module = 0;
    const char* phase = "";
  };
  struct Event {
    size_t block;
    bool taken;    // else given back
    int64_t mark;  // of the profile; -1: before the first
  };

  // Watches the arena until stop() or its own end. Both must outlive it.
  MemoryProfile(Arena& arena, const KernelProfile& profile);
  ~MemoryProfile() override { stop(); }
  MemoryProfile(const MemoryProfile&) = delete;
  MemoryProfile& operator=(const MemoryProfile&) = delete;

  void stop() { arena_.observe(nullptr); }

  const std::vector<Event>& events() const { return events_; }
  const Block& block(size_t index) const { return blocks_[index]; }
  // The events before this one come before what counts; clear() with the profile's.
  size_t first_event() const { return first_event_; }
  void clear() { first_event_ = events_.size(); }

  struct Peak {
    int64_t bytes = 0;
    size_t event = 0;            // after which it was reached
    std::vector<size_t> blocks;  // what was there, the largest first
  };
  // Since clear().
  Peak peak() const;

  void allocated(const void* block, int64_t bytes, MemoryKind kind) override;
  void shaped(const void* block, const Shape& shape, DType dtype) override;
  void released(const void* block) override;

 private:
  Arena& arena_;
  const KernelProfile& profile_;
  std::vector<Block> blocks_;  // ever taken
  std::vector<Event> events_;
  std::unordered_map<const void*, size_t> there_;
  size_t first_event_ = 0;
};

}  // namespace loam
