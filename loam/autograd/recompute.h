// Activation checkpointing: Chen, Xu, Zhang and Guestrin 2016, "Training deep nets with sublinear memory cost".
// Segments nest. For models whose activations do not fit.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "loam/autograd/context.h"

namespace loam {

using Segment = std::function<std::vector<Var>(const Context& ctx, const std::vector<Var>& inputs)>;

// Runs `segment` keeping only its inputs; backward runs it again, recorded, and differentiates that. The values and
// gradients are bit-equal to those of segment(ctx, inputs), which is what happens when ctx does not record. REQUIRES:
// the segment is a pure function of its inputs, parameters and ctx.
std::vector<Var> recompute(const Context& ctx, const Segment& segment, const std::vector<Var>& inputs);

// Stages 0 to count - 1 of a chain in a row, bit-equal to just that, in nested segments (section 4.3 of the paper):
// sizes[0] stages keep only their input; when backward reaches them they run again in segments of sizes[1] stages, and
// so on. With k sizes and equal ratios between them and `count`, about k count^(1/k) stages are kept at a time. Empty:
// everything is kept. REQUIRES: what `stage` refers to lives until backward is over.
using Stage = std::function<Var(const Context& ctx, int64_t index, const Var& x)>;
Var recompute_chain(const Context& ctx, int64_t count, std::vector<int64_t> sizes, Stage stage, Var x);
// How often each stage runs again.
std::vector<int64_t> chain_reruns(int64_t count, std::span<const int64_t> sizes);

}  // namespace loam
