// Memory of one device, cut from a few large segments and reused, so that a training step asks the system for nothing.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "loam/tensor/device.h"

namespace loam {

enum class MemoryKind : uint8_t { weights, gradients, moments, activations, workspace, cache, other };
inline constexpr int kMemoryKinds = 7;
const char* memory_kind_name(MemoryKind kind);

struct ArenaStats {
  std::array<int64_t, kMemoryKinds> bytes{};  // in use now, by kind
  std::array<int64_t, kMemoryKinds> peak{};   // the most of each kind since reset_peak()
  int64_t total = 0, total_peak = 0;          // of all kinds together
  int64_t reserved = 0;                       // taken from the system
  int64_t refused = 0;  // what would have been in use after the last allocation that failed; 0: none did
};

// Best fit over segments taken from the system, neighbours joined on release. Blocks are aligned to 64 bytes, on a GPU
// to 256; a size of 0 gives a valid, distinct block. Thread safety: all members may be called from any thread.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  struct Options {
    int64_t segment_bytes = int64_t{64} << 20;  // of an ordinary segment; a larger request gets one of its own
    int64_t limit_bytes = 0;                    // 0: none
    int64_t guard_bytes =
        0;  // tests: a pattern after each block, checked on release, and NaN bits (0xFF) in each new block
    // Address space that the system need not have memory for: to count what work would take. Kernels that need
    // workspace take it, and do nothing.
    bool sparse = false;
  };
  static std::shared_ptr<Arena> create(Device device, Options options);
  static std::shared_ptr<Arena> create(Device device) { return create(device, Options{}); }
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Device device() const { return device_; }
  bool sparse() const { return sparse_; }
  // Error{kOutOfMemory} that says what was asked for, what is in use by kind, and the limit.
  void* allocate(int64_t bytes, MemoryKind kind);
  void release(void* block);
  ArenaStats stats() const;
  // Blocks whose guard was found overwritten so far, live ones included.
  int64_t broken_guards() const;
  void reset_peak();
  // From now on no memory goes back to the system before the end: recorded work runs on it again (Recording).
  void keep_segments();

 private:
  Arena(Device device, Options options);
  struct State;
  Device device_;
  bool sparse_;
  std::unique_ptr<State> state_;
};

}  // namespace loam
