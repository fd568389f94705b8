#include "loam/kernels/memory_profile.h"

#include <algorithm>
#include <set>

namespace loam {

MemoryProfile::MemoryProfile(Arena& arena, const KernelProfile& profile) : arena_(arena), profile_(profile) {
  arena_.observe(this);
}

void MemoryProfile::allocated(const void* block, int64_t bytes, MemoryKind kind) {
  there_[block] = blocks_.size();
  events_.push_back({blocks_.size(), true, profile_.last_mark()});
  Block made;
  made.bytes = bytes;
  made.kind = kind;
  made.call = profile_.calls_begun() - (profile_.in_call() ? 1 : 0);
  made.module = profile_.module();
  made.phase = profile_.phase_name();
  blocks_.push_back(made);
}

void MemoryProfile::shaped(const void* block, const Shape& shape, DType dtype) {
  const auto place = there_.find(block);
  if (place == there_.end()) return;
  blocks_[place->second].shape = shape;
  blocks_[place->second].dtype = dtype;
}

void MemoryProfile::released(const void* block) {
  const auto place = there_.find(block);
  if (place == there_.end()) return;  // it was there before
  events_.push_back({place->second, false, profile_.last_mark()});
  there_.erase(place);
}

MemoryProfile::Peak MemoryProfile::peak() const {
  Peak peak;
  int64_t total = 0;
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[i];
    total += event.taken ? blocks_[event.block].bytes : -blocks_[event.block].bytes;
    if (i + 1 < first_event_) continue;  // what lies there when the count begins counts
    if (total <= peak.bytes) continue;
    peak.bytes = total;
    peak.event = i;
  }
  std::set<size_t> there;
  for (size_t i = 0; i <= peak.event && i < events_.size(); ++i) {
    if (events_[i].taken) {
      there.insert(events_[i].block);
    } else {
      there.erase(events_[i].block);
    }
  }
  peak.blocks.assign(there.begin(), there.end());
  std::stable_sort(peak.blocks.begin(), peak.blocks.end(),
                   [&](size_t a, size_t b) { return blocks_[a].bytes > blocks_[b].bytes; });
  return peak;
}

}  // namespace loam
