// Where memory lies and work runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace loam {

enum class DeviceKind : uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};

// "cpu", "cuda", "cuda:1". Error{kInvalidArgument} for another form. Whether it is there: loam/tensor/device_memory.h.
Device parse_device(std::string_view name);
std::string device_name(Device device);

// An execution queue of a device; on the CPU there is none and work runs at once.
struct Stream {
  void* handle = nullptr;
};

}  // namespace loam
