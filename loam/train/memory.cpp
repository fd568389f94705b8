#include "loam/train/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "loam/base/cgroup.h"
#include "loam/base/progress.h"
#include "loam/tensor/device_memory.h"

namespace loam {
namespace {

// The number after `key` in a file of lines "key number ...".
std::optional<int64_t> number_after(const Path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word, rest; file >> word; std::getline(file, rest)) {
    if (int64_t number = 0; word == key && file >> number) return number;
  }
  return std::nullopt;
}

// The names that a version of control groups gives to what is asked here.
struct GroupFiles {
  const char *limit, *used;
  const char *inactive_file, *active_file;  // in memory.stat: the page cache
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                               "total_active_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file", "active_file"};

// What the limit of a group leaves.
std::optional<int64_t> left_in(const ControlGroup& group) {
  const GroupFiles& files = group.version == 1 ? kVersion1 : kVersion2;
  const auto limit = numbers_in(group.directory / files.limit), used = numbers_in(group.directory / files.used);
  if (limit.empty() || used.empty()) return std::nullopt;
  const Path stat = group.directory / "memory.stat";
  const int64_t cache =
      number_after(stat, files.inactive_file).value_or(0) + number_after(stat, files.active_file).value_or(0);
  return limit[0] - std::max<int64_t>(used[0] - cache, 0);
}

}  // namespace

std::optional<int64_t> available_memory(const Path& root) {
  std::optional<int64_t> available = number_after(root / "proc/meminfo", "MemAvailable:");
  if (available) *available *= 1024;  // it is in kB
  for (const ControlGroup& group : control_groups("memory", root)) {
    if (const auto left = left_in(group)) available = std::min(available.value_or(*left), *left);
  }
  if (available) *available = std::max<int64_t>(*available, 0);
  return available;
}

std::optional<int64_t> available_memory(const ExecContext& ctx) {
  const ArenaStats held = ctx.arena->stats();
  if (ctx.device.kind == DeviceKind::cpu) {
    // Of what the arena has reserved but does not use some may never have been touched.
    const std::optional<int64_t> available = available_memory();
    return available ? std::optional(*available + held.total) : std::nullopt;
  }
  if (ctx.arena->sparse()) return std::nullopt;
  return device_properties(ctx.device).free + held.reserved;
}

std::string memory_owner(const ExecContext& ctx) {
  if (ctx.device.kind == DeviceKind::cpu) return "the machine";
  if (ctx.arena->sparse()) return device_name(ctx.device);
  const DeviceProperties found = device_properties(ctx.device);
  return fmt::format("{} ({}, {})", device_name(ctx.device), found.name,
                     format_bytes(static_cast<double>(found.memory)));
}

}  // namespace loam
