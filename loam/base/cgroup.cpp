#include "loam/base/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace loam {
namespace {

// "max 100000": no limit; "150000 100000": 1.5 cores. In version 1 two files, and -1 for no limit.
std::optional<int64_t> quota_of(const ControlGroup& group) {
  std::vector<int64_t> numbers;  // microseconds of a core, in so many microseconds
  if (group.version == 2) {
    numbers = numbers_in(group.directory / "cpu.max");
  } else {
    for (const char* name : {"cpu.cfs_quota_us", "cpu.cfs_period_us"}) {
      for (const int64_t number : numbers_in(group.directory / name)) numbers.push_back(number);
    }
  }
  if (numbers.size() != 2 || numbers[0] <= 0 || numbers[1] <= 0) return std::nullopt;
  return (numbers[0] - 1) / numbers[1] + 1;
}

}  // namespace

std::vector<int64_t> numbers_in(const Path& path) {
  std::ifstream file(path);
  std::vector<int64_t> numbers;
  for (int64_t number; file >> number;) numbers.push_back(number);
  return numbers;
}

std::vector<ControlGroup> control_groups(std::string_view controller, const Path& root) {
  std::vector<ControlGroup> groups;
  // Lines "number:controllers:group"; version 2 is number 0 and names no controllers.
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version_1 = controllers.find(fmt::format(",{},", controller)) != controllers.npos;
    if (!version_1 && !line.starts_with("0::")) continue;
    const std::string mount = version_1 ? fmt::format("sys/fs/cgroup/{}", controller) : "sys/fs/cgroup";
    // "/a/b", "/a", "".
    std::string name = line.substr(second + 1);
    for (;; name.resize(name.rfind('/'))) {
      groups.push_back({version_1 ? 1 : 2, root / (mount + name)});
      if (name.find('/') == name.npos) break;
    }
  }
  return groups;
}

std::optional<int64_t> cpu_quota(const Path& root) {
  std::optional<int64_t> tightest;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    if (const auto quota = quota_of(group)) tightest = std::min(tightest.value_or(*quota), *quota);
  }
  return tightest;
}

}  // namespace loam
