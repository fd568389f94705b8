// How much memory a run may take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loam/base/file.h"
#include "loam/kernels/exec_context.h"

namespace loam {

// Bytes that this process can still get without swapping: MemAvailable of the machine, and no more than what the limits
// of its control group and of those above it leave. The page cache counts as free, as the kernel gives it up on demand.
// nullopt if the system tells neither. `root` is where /proc and /sys lie (for tests).
std::optional<int64_t> available_memory(const Path& root = "/");

// Of the device of a context: what its arena holds and what else it can get. On a GPU that is what the driver says.
// nullopt if nobody tells, or for a GPU that is not there.
std::optional<int64_t> available_memory(const ExecContext& ctx);

// "the machine", or "cuda (NVIDIA H200, 141.0 GB)".
std::string memory_owner(const ExecContext& ctx);

}  // namespace loam
