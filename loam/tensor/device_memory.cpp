#include "loam/tensor/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "loam/base/error.h"
#ifdef LOAM_HAS_CUDA
#include "loam/tensor/cuda/cuda.h"
#endif

namespace loam {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

// At a multiple of the huge page size, so that the kernel can back it with huge pages from its first byte.
void* map(Device, int64_t bytes, bool sparse) {
  const int64_t padded = bytes + kHugePage;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (sparse ? MAP_NORESERVE : 0);
  void* mapped = mmap(nullptr, static_cast<size_t>(padded), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapped);
  const auto beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % kHugePage);
  const int64_t head = beyond == 0 ? 0 : kHugePage - beyond;
  if (head > 0) munmap(begin, static_cast<size_t>(head));
  if (head < kHugePage) munmap(begin + head + bytes, static_cast<size_t>(kHugePage - head));
  // Advice: a refusal costs only speed.
  madvise(begin + head, static_cast<size_t>(bytes), sparse ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  return begin + head;
}
void unmap(Device, void* begin, int64_t bytes) { munmap(begin, static_cast<size_t>(bytes)); }
void fill(void* to, uint8_t byte, int64_t bytes) { std::memset(to, byte, static_cast<size_t>(bytes)); }
void copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }

constexpr DeviceMemory kHostMemory{map, unmap, fill, copy};

}  // namespace

const DeviceMemory& device_memory(DeviceKind kind) {
  if (kind == DeviceKind::cpu) return kHostMemory;
#ifdef LOAM_HAS_CUDA
  return cuda::kDeviceMemory;
#else
  fail(ErrorCode::kUnavailable, "device: this build has no CUDA");
#endif
}

int device_count(DeviceKind kind) {
  if (kind == DeviceKind::cpu) return 1;
#ifdef LOAM_HAS_CUDA
  return cuda::count();
#else
  return 0;
#endif
}

void require_device(Device device) {
  if (device.kind == DeviceKind::cpu) return;
#ifdef LOAM_HAS_CUDA
  cuda::require(device);
#else
  fail(ErrorCode::kUnavailable, "device: {} needs a build with CUDA, and this one has none", device_name(device));
#endif
}

DeviceProperties device_properties(Device device) {
  require_device(device);
#ifdef LOAM_HAS_CUDA
  if (device.kind == DeviceKind::cuda) return cuda::properties(device);
#endif
  fail(ErrorCode::kInvalidArgument, "device: {} is no GPU", device_name(device));
}

}  // namespace loam
