// How much memory a run may take.
#pragma once

#include <cstdint>
#include <optional>

#include "loam/base/file.h"

namespace loam {

// Bytes that this process can still get without swapping: MemAvailable of the machine, and no more than what the limits
// of its control group and of those above it leave. The page cache counts as free, as the kernel gives it up on demand.
// nullopt if the system tells neither. `root` is where /proc and /sys lie (for tests).
std::optional<int64_t> available_memory(const Path& root = "/");

}  // namespace loam
