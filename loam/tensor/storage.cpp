#include "loam/tensor/storage.h"

#include <utility>

namespace loam {

// That of a sparse arena is the host's.
Storage::Storage(std::shared_ptr<Arena> arena, int64_t bytes, MemoryKind kind)
    : arena_(std::move(arena)),
      data_(arena_->allocate(bytes, kind)),
      bytes_(bytes),
      device_(arena_->sparse() ? Device{} : arena_->device()) {}

Storage::Storage(std::shared_ptr<void> owner, void* data, int64_t bytes, Device device)
    : owner_(std::move(owner)), data_(data), bytes_(bytes), device_(device) {}

Storage::~Storage() {
  if (arena_) arena_->release(data_);
}

}  // namespace loam
