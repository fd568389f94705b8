// The control groups of this process: what a container or a batch system lets it have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loam/base/file.h"

namespace loam {

struct ControlGroup {
  int version;  // 1 or 2
  Path directory;
};

// The groups that limit `controller` ("memory", "cpu"), from this process's own to the outermost, of both versions
// where both are in use. Not every directory need be there: in a container the outer names may be missing. `root` is
// where /proc and /sys lie (for tests).
std::vector<ControlGroup> control_groups(std::string_view controller, const Path& root = "/");

// Cores that the quotas of these groups allow, the tightest one, rounded up and at least 1; nullopt without a quota.
std::optional<int64_t> cpu_quota(const Path& root = "/");

// The numbers that a file begins with; fewer than there are words where one is no number ("max").
std::vector<int64_t> numbers_in(const Path& path);

}  // namespace loam
