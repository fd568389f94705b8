// Activation checkpointing: Chen, Xu, Zhang and Guestrin 2016, "Training deep nets with sublinear memory cost".
// Segments nest. For models whose activations do not fit; no module of loam/nn uses it by itself.
#pragma once

#include <functional>
#include <vector>

#include "loam/autograd/context.h"

namespace loam {

using Segment = std::function<std::vector<Var>(const Context& ctx, const std::vector<Var>& inputs)>;

// Runs `segment` keeping only its inputs; backward runs it again, recorded, and differentiates that. The values and
// gradients are bit-equal to those of segment(ctx, inputs), which is what happens when ctx does not record. REQUIRES:
// the segment is a pure function of its inputs, parameters and ctx.
std::vector<Var> recompute(const Context& ctx, const Segment& segment, const std::vector<Var>& inputs);

}  // namespace loam
