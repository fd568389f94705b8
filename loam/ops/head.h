// What linear_log_prob and cross_entropy share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"
#include "loam/ops/linear_log_prob.h"

namespace loam::ops {

// Bound on the logits in memory at any time, in f32; a model of 16 bits needs half of it again.
inline constexpr int64_t kLogitsBytes = int64_t{64} << 20, kLogitsBytesOfGpu = int64_t{1} << 30;

// Rows of logits that cross_entropy makes at a time: as many as the bound allows, at least 64, in chunks of nearly
// equal size, since a matrix product of few rows costs almost as much as one of many.
inline int64_t logits_rows(int64_t N, int64_t V, int64_t bytes = kLogitsBytes) {
  const int64_t most = std::max<int64_t>(64, bytes / 4 / std::max<int64_t>(V, 1));
  const int64_t chunks = std::max<int64_t>(1, (N + most - 1) / most);
  return (N + chunks - 1) / chunks;
}

struct HeadInputs {
  int64_t N, C, V;
  View hidden;   // [N,C]
  View targets;  // [N], i32
};
// Checks shapes, dtypes and the range of the targets.
HeadInputs check_head(const char* op, const Tensor& hidden, const LanguageHead& head, const Tensor& targets);

// Logits of some rows for the vocabulary [begin, begin + out.dim(1)), into `out`, f32 or the model's dtype.
void make_logits(const ExecContext& ctx, const LanguageHead& head, const View& hidden, int64_t begin, const View& out);

// The gradient of logits in the model's dtype, for the matmuls of backward; empty if it is f32 already.
Tensor narrowed_logits(const ExecContext& ctx, const View& d_logits, DType dtype);

}  // namespace loam::ops
