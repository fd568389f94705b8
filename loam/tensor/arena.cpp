#include "loam/tensor/arena.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "loam/base/error.h"
#include "loam/tensor/device_memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace loam {
namespace {

constexpr int64_t kAlignment = 64;       // a cache line
constexpr int64_t kCudaAlignment = 256;  // as cudaMalloc
constexpr int64_t kPage = 4096;
constexpr uint8_t kGuard = 0xA5;

// AddressSanitizer sees the arena as one mapping: tell it what is in use, and leave a forbidden gap after each block.
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kGap = 64;
void forbid(const std::byte* at, int64_t bytes) { ASAN_POISON_MEMORY_REGION(at, static_cast<size_t>(bytes)); }
void permit(const std::byte* at, int64_t bytes) { ASAN_UNPOISON_MEMORY_REGION(at, static_cast<size_t>(bytes)); }
#else
constexpr int64_t kGap = 0;
void forbid(const std::byte*, int64_t) {}
void permit(const std::byte*, int64_t) {}
#endif

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

std::string megabytes(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

const char* memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::weights:
      return "weights";
    case MemoryKind::gradients:
      return "gradients";
    case MemoryKind::moments:
      return "moments";
    case MemoryKind::activations:
      return "activations";
    case MemoryKind::workspace:
      return "workspace";
    case MemoryKind::cache:
      return "cache";
    case MemoryKind::other:
      return "other";
  }
  return "unknown";
}

// Invariants: the blocks tile every segment in order of address; no two free blocks of a segment are neighbours;
// `free_by_size` holds exactly the free blocks.
struct Arena::State {
  struct Block {
    int64_t bytes = 0;
    std::byte* segment = nullptr;  // start of the segment it lies in
    bool free = true;
    MemoryKind kind = MemoryKind::other;
    int64_t guarded = 0;  // bytes before the guard
  };
  using Blocks = std::map<std::byte*, Block>;

  State(Device d, Options o)
      : device(d),
        memory(device_memory(o.sparse ? DeviceKind::cpu : d.kind)),
        alignment(d.kind == DeviceKind::cuda ? kCudaAlignment : kAlignment),
        options(o) {
    options.limit_bytes = round_up(o.limit_bytes, kPage);
  }
  ~State() {
    for (const auto& [begin, bytes] : segments) unmap(begin, bytes);
  }

  Device device;
  const DeviceMemory& memory;
  int64_t alignment;
  Options options;
  mutable std::mutex mutex;
  Blocks blocks;
  std::set<std::pair<int64_t, std::byte*>> free_by_size;
  std::unordered_map<std::byte*, int64_t> segments;
  ArenaStats stats;
  int64_t broken_guards = 0;
  bool keeps_segments = false;

  void unmap(std::byte* begin, int64_t bytes) const {
    permit(begin, bytes);
    memory.unmap(device, begin, bytes);
  }

  int64_t room() const {
    return options.limit_bytes > 0 ? options.limit_bytes - stats.reserved : std::numeric_limits<int64_t>::max();
  }

  // The smallest free block that holds `bytes`, else a new segment's. blocks.end() if the memory is not to be had.
  Blocks::iterator find_free(int64_t bytes) {
    auto fit = free_by_size.lower_bound({bytes, nullptr});
    if (fit == free_by_size.end()) {
      if (!add_segment(bytes)) {
        if (!keeps_segments) give_back_empty_segments();
        if (!add_segment(bytes)) return blocks.end();
      }
      fit = free_by_size.lower_bound({bytes, nullptr});
    }
    return blocks.find(fit->second);
  }

  // Adds a segment that holds at least `bytes`; false if the limit or the system forbids it.
  bool add_segment(int64_t bytes) {
    const int64_t size = round_up(std::max(bytes, std::min(options.segment_bytes, room())), kPage);
    auto* begin = size <= room() ? static_cast<std::byte*>(memory.map(device, size, options.sparse)) : nullptr;
    if (!begin) return false;
    forbid(begin, size);
    segments[begin] = size;
    stats.reserved += size;
    blocks[begin] = {size, begin, true, MemoryKind::other};
    free_by_size.insert({size, begin});
    return true;
  }

  void give_back_empty_segments() {
    for (auto segment = segments.begin(); segment != segments.end();) {
      const auto block = blocks.find(segment->first);
      if (block->second.free && block->second.bytes == segment->second) {
        free_by_size.erase({block->second.bytes, block->first});
        blocks.erase(block);
        unmap(segment->first, segment->second);
        stats.reserved -= segment->second;
        segment = segments.erase(segment);
      } else {
        ++segment;
      }
    }
  }

  // Leaves `bytes` in the block and makes the rest a free one.
  void split(Blocks::iterator block, int64_t bytes) {
    const int64_t rest = block->second.bytes - bytes;
    if (rest < alignment) return;
    block->second.bytes = bytes;
    blocks.emplace_hint(std::next(block), block->first + bytes,
                        Block{rest, block->second.segment, true, MemoryKind::other});
    free_by_size.insert({rest, block->first + bytes});
  }

  // Joins `left` with its right neighbour if both are free and of one segment.
  void join(Blocks::iterator left) {
    const auto right = std::next(left);
    if (right == blocks.end() || right->second.segment != left->second.segment) return;
    if (!left->second.free || !right->second.free) return;
    free_by_size.erase({left->second.bytes, left->first});
    free_by_size.erase({right->second.bytes, right->first});
    left->second.bytes += right->second.bytes;
    blocks.erase(right);
    free_by_size.insert({left->second.bytes, left->first});
  }

  void write_guard(Blocks::iterator block, int64_t bytes) const {
    if (options.guard_bytes == 0) return;
    block->second.guarded = bytes;
    permit(block->first + bytes, options.guard_bytes);
    memory.fill(block->first, 0xFF, bytes);
    memory.fill(block->first + bytes, kGuard, options.guard_bytes);
    forbid(block->first + bytes, options.guard_bytes);
  }

  bool guard_holds(const std::byte* block, int64_t bytes) const {
    if (options.guard_bytes == 0) return true;
    permit(block + bytes, options.guard_bytes);
    std::vector<uint8_t> guard(static_cast<size_t>(options.guard_bytes));
    memory.copy(guard.data(), block + bytes, options.guard_bytes);
    return std::all_of(guard.begin(), guard.end(), [](uint8_t byte) { return byte == kGuard; });
  }

  void count(MemoryKind kind, int64_t bytes) {
    const auto k = static_cast<size_t>(kind);
    stats.bytes[k] += bytes;
    stats.total += bytes;
    stats.peak[k] = std::max(stats.peak[k], stats.bytes[k]);
    stats.total_peak = std::max(stats.total_peak, stats.total);
  }

  std::string free_on_device() const {
    if (device.kind == DeviceKind::cpu || options.sparse) return "";
    const DeviceProperties found = device_properties(device);
    return fmt::format(", free {} of {} on {} ({})", megabytes(found.free), megabytes(found.memory),
                       device_name(device), found.name);
  }

  [[noreturn]] void fail_out_of_memory(int64_t bytes, MemoryKind kind) {
    stats.refused = stats.total + std::min(bytes, std::numeric_limits<int64_t>::max() / 2);
    std::string use;
    for (int k = 0; k < kMemoryKinds; ++k) {
      const int64_t held = stats.bytes[static_cast<size_t>(k)];
      if (held > 0) {
        use += fmt::format("{}{} {}", use.empty() ? "" : ", ", memory_kind_name(MemoryKind(k)), megabytes(held));
      }
    }
    fail(ErrorCode::kOutOfMemory, "arena: out of memory: asked for {} of {}{}; in use: {}; reserved: {}; limit: {}",
         megabytes(bytes), memory_kind_name(kind), free_on_device(), use.empty() ? "nothing" : use,
         megabytes(stats.reserved), options.limit_bytes > 0 ? megabytes(options.limit_bytes) : "none");
  }
};

Arena::Arena(Device device, Options options)
    : device_(device), sparse_(options.sparse), state_(std::make_unique<State>(device, options)) {}
Arena::~Arena() = default;

std::shared_ptr<Arena> Arena::create(Device device, Options options) {
  if (!options.sparse) require_device(device);
  LOAM_CHECK(options.segment_bytes > 0 && options.limit_bytes >= 0, "arena: segments of {} bytes with limit {}",
             options.segment_bytes, options.limit_bytes);
  return std::shared_ptr<Arena>(new Arena(device, options));
}

void* Arena::allocate(int64_t bytes, MemoryKind kind) {
  LOAM_CHECK(bytes >= 0, "arena: asked for {} bytes", bytes);
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (bytes > std::numeric_limits<int64_t>::max() / 2) s.fail_out_of_memory(bytes, kind);
  const int64_t size = round_up(std::max<int64_t>(bytes, 1) + s.options.guard_bytes, s.alignment) + kGap;
  const auto block = s.find_free(size);
  if (block == s.blocks.end()) s.fail_out_of_memory(bytes, kind);
  s.free_by_size.erase({block->second.bytes, block->first});
  s.split(block, size);
  block->second.free = false;
  block->second.kind = kind;
  s.count(kind, block->second.bytes);
  permit(block->first, bytes);
  s.write_guard(block, bytes);
  if (observer_) observer_->allocated(block->first, block->second.bytes, kind);
  return block->first;
}

void Arena::release(void* memory) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const auto block = s.blocks.find(static_cast<std::byte*>(memory));
  if (block == s.blocks.end() || block->second.free)
    fail(ErrorCode::kInternal, "arena: released a block it does not hold");
  if (!s.guard_holds(block->first, block->second.guarded)) ++s.broken_guards;
  if (observer_) observer_->released(block->first);
  s.count(block->second.kind, -block->second.bytes);
  block->second.free = true;
  forbid(block->first, block->second.bytes);
  s.free_by_size.insert({block->second.bytes, block->first});
  s.join(block);
  if (block != s.blocks.begin()) s.join(std::prev(block));
}

ArenaStats Arena::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

int64_t Arena::broken_guards() const {
  const std::lock_guard lock(state_->mutex);
  int64_t broken = state_->broken_guards;
  for (const auto& [begin, block] : state_->blocks) {
    if (!block.free && !state_->guard_holds(begin, block.guarded)) ++broken;
  }
  return broken;
}

void Arena::reset_peak() {
  const std::lock_guard lock(state_->mutex);
  state_->stats.peak = state_->stats.bytes;
  state_->stats.total_peak = state_->stats.total;
}

void Arena::keep_segments() {
  const std::lock_guard lock(state_->mutex);
  state_->keeps_segments = true;
}

void Arena::describe(const void* block, const Shape& shape, DType dtype) {
  if (!observer_) return;
  const std::lock_guard lock(state_->mutex);
  observer_->shaped(block, shape, dtype);
}

}  // namespace loam
