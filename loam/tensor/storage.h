// A block of memory with an owner count.
#pragma once

#include <cstdint>
#include <memory>

#include "loam/tensor/arena.h"

namespace loam {

// Releases its block to the arena when the last Tensor lets go. `owner` keeps something else alive instead (a mapped
// file); such memory is read only.
class Storage {
 public:
  Storage(std::shared_ptr<Arena> arena, int64_t bytes, MemoryKind kind);
  Storage(std::shared_ptr<void> owner, void* data, int64_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
#ifdef LOAM_DEBUG
  // Counts writes after creation, so that the tape can see that a saved tensor was changed.
  int64_t version = 0;
#endif

 private:
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<void> owner_;
  void* data_;
  int64_t bytes_;
  Device device_;
};

}  // namespace loam
