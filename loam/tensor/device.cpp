#include "loam/tensor/device.h"

#include <charconv>

#include "loam/base/error.h"

namespace loam {

Device parse_device(std::string_view name) {
  if (name == "cpu") return {};
  Device device{DeviceKind::cuda, 0};
  bool valid = name == "cuda";
  if (name.starts_with("cuda:")) {
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + 5, end, device.index);
    valid = error == std::errc() && rest == end && device.index >= 0;
  }
  LOAM_CHECK(valid, "device: \"{}\" is not one of cpu, cuda, cuda:N", name);
  return device;
}

std::string device_name(Device device) {
  if (device.kind == DeviceKind::cpu) return "cpu";
  return device.index == 0 ? "cuda" : fmt::format("cuda:{}", device.index);
}

}  // namespace loam
