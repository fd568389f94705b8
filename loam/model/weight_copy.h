// Weights between files and parameters: any float dtype to any other, transposed or with rows in another order.
#pragma once

#include <cstdint>
#include <vector>

#include "loam/config/model_config.h"
#include "loam/tensor/tensor.h"

namespace loam {

// to[r, c] = from[row_of[r], c], converted by rounding to nearest even. Both have one shape of one or two axes and any
// strides; an empty `row_of` keeps the order. f32, bf16 or f16; what f16 cannot hold is infinite there. On the CPU.
void copy_weights(const Tensor& from, const Tensor& to, const std::vector<int64_t>& row_of, int threads);

// How many values of a contiguous f32, bf16 or f16 tensor on the CPU are no finite numbers.
struct NonFinite {
  int64_t nan = 0, infinite = 0;
};
NonFinite count_non_finite(const Tensor& tensor, int threads);

}  // namespace loam
