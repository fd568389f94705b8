// Where the segments of an arena come from, and how bytes get in and out of a device's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loam/tensor/device.h"

namespace loam {

// Of one kind of device. Every call is complete when it returns, and waits for the work before it on all streams.
struct DeviceMemory {
  // `bytes` at a multiple of 2 MiB, or null if there are none. sparse: address space alone, the host's only
  // (Arena::Options).
  void* (*map)(Device device, int64_t bytes, bool sparse);
  void (*unmap)(Device device, void* begin, int64_t bytes);
  void (*fill)(void* to, uint8_t byte, int64_t bytes);
  void (*copy)(void* to, const void* from, int64_t bytes);  // either side may be the host's
};
// Error{kUnavailable} for a device that is not built in.
const DeviceMemory& device_memory(DeviceKind kind);

// How many devices of the kind there are: 1 for the CPU; 0 without CUDA, a GPU or its driver.
int device_count(DeviceKind kind);
// Error{kUnavailable} that says what is missing: a build with CUDA, a driver (or a newer one), a GPU, or this index.
void require_device(Device device);

struct DeviceProperties {
  std::string name;              // "NVIDIA H200"
  int64_t memory = 0, free = 0;  // bytes
  int multiprocessors = 0;
  int major = 0, minor = 0;  // compute capability
};
// Of a GPU; Error as require_device.
DeviceProperties device_properties(Device device);

}  // namespace loam
