#include "loam/tensor/view.h"

namespace loam {

bool View::is_contiguous() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape[axis] != 1 && strides[axis] != expected)
      return false;  // the stride of an axis of one element is never used
    expected *= shape[axis];
  }
  return true;
}

Rows as_rows(const View& view, const char* what) {
  if (view.rank() == 0) return {1, 1, 1};
  const int last = view.rank() - 1;
  Rows rows{1, view.shape[last], view.shape[last]};
  for (int axis = 0; axis < last; ++axis) rows.rows *= view.shape[axis];
  if (rows.rows == 0 || rows.cols == 0) return rows;
  LOAM_CHECK(rows.cols == 1 || view.strides[last] == 1, "{}: the last axis of shape {} has stride {}, not 1", what,
             view.shape.str(), view.strides[last]);
  int64_t expected = -1;  // the stride at which the next axis outwards continues the rows; none seen yet
  for (int axis = last - 1; axis >= 0; --axis) {
    if (view.shape[axis] == 1) continue;
    if (expected < 0) {
      rows.stride = view.strides[axis];
    } else {
      LOAM_CHECK(view.strides[axis] == expected, "{}: shape {} with strides {} is not a matrix of evenly spaced rows",
                 what, view.shape.str(), view.strides.str());
    }
    expected = view.strides[axis] * view.shape[axis];
  }
  return rows;
}

}  // namespace loam
