#include "loam/train/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

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

// The number that a file begins with; "max" is none.
std::optional<int64_t> number_in(const Path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

// The names that a version of control groups gives to what is asked here.
struct GroupFiles {
  const char* mount;
  const char *limit, *used;
  const char *inactive_file, *active_file;  // in memory.stat: the page cache
};
constexpr GroupFiles kVersion1{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file", "total_active_file"};
constexpr GroupFiles kVersion2{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"};

std::optional<int64_t> smaller(std::optional<int64_t> a, std::optional<int64_t> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// What the limits of a group and of all above it leave.
std::optional<int64_t> left_in_group(const Path& root, const GroupFiles& files, const std::string& group) {
  std::optional<int64_t> left;
  // "/a/b", "/a", "": in a container the outer names may not be there.
  for (std::string name = group;; name.resize(name.rfind('/'))) {
    const Path directory = root / (files.mount + name);
    const auto limit = number_in(directory / files.limit), used = number_in(directory / files.used);
    if (limit && used) {
      const Path stat = directory / "memory.stat";
      const int64_t cache =
          number_after(stat, files.inactive_file).value_or(0) + number_after(stat, files.active_file).value_or(0);
      left = smaller(left, *limit - std::max<int64_t>(*used - cache, 0));
    }
    if (name.find('/') == name.npos) return left;
  }
}

}  // namespace

std::optional<int64_t> available_memory(const Path& root) {
  std::optional<int64_t> available = number_after(root / "proc/meminfo", "MemAvailable:");
  if (available) *available *= 1024;  // it is in kB
  // Lines "number:controllers:group"; version 2 is number 0 and names no controllers.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    const bool version_1 = controllers.find(",memory,") != controllers.npos;
    if (version_1 || line.starts_with("0::")) {
      available = smaller(available, left_in_group(root, version_1 ? kVersion1 : kVersion2, group));
    }
  }
  if (available) *available = std::max<int64_t>(*available, 0);
  return available;
}

}  // namespace loam
