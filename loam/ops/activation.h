#pragma once

#include "loam/autograd/context.h"
#include "loam/kernels/activation.h"

namespace loam::ops {

Var activation(const Context& ctx, const Var& x, Activation kind);  // f(x), any shape
Var gated(const Context& ctx, const Var& x, Activation kind);  // x [..., 2F] = [gate | up] -> f(gate) * up, [..., F]

}  // namespace loam::ops
