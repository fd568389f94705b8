// Rows of a matrix in groups that may lie apart: the heads of a slice of fused projections.
#pragma once

#include <cstdint>

#include "loam/tensor/view.h"

namespace loam {

// Rows in groups of `group` that lie evenly, while the groups may lie apart.
struct GroupedRows {
  int64_t rows = 0, cols = 0, group = 1, group_stride = 0, stride = 0;  // strides in elements
  constexpr int64_t at(int64_t n) const {                               // of row n's first element
    return group == 1 ? n * group_stride : n / group * group_stride + n % group * stride;
  }
};

// Of a [N,C] view, or one that folds to it, or of [N,G,C]. Error{kInvalidArgument} that names `what` unless the last
// axis has stride 1.
inline GroupedRows grouped_rows(const View& view, const char* what) {
  if (view.rank() != 3) {
    const Rows rows = as_rows(view, what);
    return {rows.rows, rows.cols, 1, rows.stride, 0};
  }
  const auto [N, G, C] = view.dims<3>();
  LOAM_CHECK(C <= 1 || view.stride(2) == 1, "{}: its last axis has stride {}, not 1", what, view.stride(2));
  if (G == 1 || view.stride(0) == G * view.stride(1)) return {N * G, C, 1, view.stride(G == 1 ? 0 : 1), 0};
  return {N * G, C, G, view.stride(0), view.stride(1)};
}

}  // namespace loam
