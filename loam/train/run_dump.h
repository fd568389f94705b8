// The batch of a step that went wrong, for people: OUT/dumps/step-N.json.
#pragma once

#include <string>

#include "loam/train/trainer.h"

namespace loam {

// Writes what the step that was tried last saw: {"step", "reason", "loss", "grad_norm", "lr", "first_sample", "rows"}.
// The name is that of the step, and of its first sample where batches were left out before it, since the step may be
// tried again with another batch. Returns the path; empty once a run has kMaxDumps of them.
inline constexpr int64_t kMaxDumps = 100;
Path write_dump(const Path& out, const Trainer& trainer, int64_t step, const StepResult& result,
                const std::string& reason, const std::function<std::string(std::span<const int32_t>)>& decode);

}  // namespace loam
