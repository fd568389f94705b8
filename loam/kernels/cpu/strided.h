// Walks several tensors of one shape together, in rows as long as their strides allow.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "loam/base/parallel_for.h"
#include "loam/tensor/view.h"

namespace loam {

// The common shape with axes joined wherever every tensor lies evenly over them: tensors that are all contiguous become
// one single row.
template <int K>
class Walk {
 public:
  using Pointers = std::array<std::byte*, K>;

  // REQUIRES: all have the shape of views[0].
  explicit Walk(const std::array<View, K>& views) {
    const Shape& shape = views[0].shape;
    for (size_t k = 0; k < K; ++k) {
      base_[k] = static_cast<std::byte*>(views[k].data);
      element_[k] = dtype_size(views[k].dtype);
    }
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      std::array<int64_t, K> strides;
      bool joins = axes_ > 0;
      for (size_t k = 0; k < K; ++k) {
        strides[k] = views[k].strides[axis];
        joins = joins && strides_[last()][k] == strides[k] * shape[axis];
      }
      if (!joins) ++axes_;
      sizes_[last()] = joins ? sizes_[last()] * shape[axis] : shape[axis];
      strides_[last()] = strides;
    }
    // Rows of one element, which may lie apart: a last axis of size 1 has whatever stride is wanted.
    if (axes_ == 0 || (shape[-1] == 1 && !unit_strides())) {
      ++axes_;
      sizes_[last()] = 1;
      strides_[last()].fill(1);
    }
    for (int axis = 0; axis + 1 < axes_; ++axis) rows_ *= sizes_[static_cast<size_t>(axis)];
    if (row_length() == 0) rows_ = 0;
  }

  int64_t rows() const { return rows_; }
  int64_t row_length() const { return sizes_[last()]; }
  int64_t row_stride(int k) const { return strides_[last()][static_cast<size_t>(k)]; }  // between elements of a row
  bool unit_strides() const {
    return std::all_of(strides_[last()].begin(), strides_[last()].end(), [](int64_t s) { return s == 1; });
  }

  // First element of a row, or of its element `begin`.
  Pointers at(int64_t row, int64_t begin = 0) const {
    Pointers p = base_;
    advance(p, last(), begin);
    for (size_t axis = last(); axis-- > 0;) {
      advance(p, axis, row % sizes_[axis]);
      row /= sizes_[axis];
    }
    return p;
  }

 private:
  size_t last() const { return static_cast<size_t>(std::max(axes_ - 1, 0)); }
  void advance(Pointers& p, size_t axis, int64_t by) const {
    for (size_t k = 0; k < K; ++k) p[k] += by * strides_[axis][k] * element_[k];
  }

  int axes_ = 0;
  int64_t rows_ = 1;
  std::array<std::byte*, K> base_;
  std::array<int64_t, K> element_;  // bytes
  std::array<int64_t, kMaxRank> sizes_{};
  std::array<std::array<int64_t, K>, kMaxRank> strides_{};
};

// body(pointers, n) over all elements, a run of n of a row at a time; threads share rows, or the one row, in parts of
// at least `grain` elements.
template <int K, class Body>
void walk(int threads, const Walk<K>& w, int64_t grain, Body&& body) {
  if (w.rows() == 1) {
    // Parts begin at whole cache lines of a contiguous row.
    constexpr int64_t kUnit = 64;
    const int64_t n = w.row_length();
    parallel_for(threads, (n + kUnit - 1) / kUnit, std::max<int64_t>(grain / kUnit, 1),
                 [&](int64_t begin, int64_t end, int) {
                   body(w.at(0, begin * kUnit), std::min(end * kUnit, n) - begin * kUnit);
                 });
  } else if (w.rows() > 0) {
    parallel_for(threads, w.rows(), std::max<int64_t>(grain / w.row_length(), 1), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) body(w.at(row), w.row_length());
    });
  }
}

}  // namespace loam
