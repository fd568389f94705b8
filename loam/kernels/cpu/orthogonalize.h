// Muon's orthogonalization on top of the matrix product.
#pragma once

#include "loam/kernels/optimizer.h"

namespace loam::cpu {

void orthogonalize(const ExecContext& ctx, const OrthogonalizeArgs& args);

}  // namespace loam::cpu
