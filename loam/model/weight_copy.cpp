#include "loam/model/weight_copy.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "loam/base/parallel_for.h"

namespace loam {
namespace {

struct Grid {
  int64_t rows, cols, row_stride, col_stride;
};

Grid grid_of(const Tensor& t) {
  if (t.rank() == 1) return {t.dim(0), 1, t.strides()[0], 1};
  const auto [R, C] = t.dims<2>();
  return {R, C, t.strides()[0], t.strides()[1]};
}

template <class From, class To>
void copy_typed(const Tensor& from, const Tensor& to, const std::vector<int64_t>& row_of, int threads) {
  const Grid source = grid_of(from), target = grid_of(to);
  const auto* in = static_cast<const From*>(from.view().data);
  auto* out = static_cast<To*>(to.view().data);
  parallel_for(threads, target.rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const From* row = in + (row_of.empty() ? r : row_of[static_cast<size_t>(r)]) * source.row_stride;
      for (int64_t c = 0; c < target.cols; ++c) {
        out[r * target.row_stride + c * target.col_stride] = To(static_cast<float>(row[c * source.col_stride]));
      }
    }
  });
}

template <class T>
NonFinite count_typed(const T* values, int64_t count, int threads) {
  std::atomic<int64_t> nan{0}, infinite{0};
  parallel_for(threads, count, int64_t{1} << 16, [&](int64_t begin, int64_t end, int) {
    int64_t own_nan = 0, own_infinite = 0;
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(static_cast<float>(values[i])) & 0x7FFFFFFFu;
      own_nan += magnitude > 0x7F800000u;
      own_infinite += magnitude == 0x7F800000u;
    }
    nan += own_nan;
    infinite += own_infinite;
  });
  return {nan, infinite};
}

}  // namespace

NonFinite count_non_finite(const Tensor& t, int threads) {
  LOAM_CHECK(t.is_contiguous(), "weights: a contiguous tensor is needed");
  return visit_float(t.dtype(), "weights",
                     [&](auto type) { return count_typed(t.data<decltype(type)>(), t.numel(), threads); });
}

void copy_weights(const Tensor& from, const Tensor& to, const std::vector<int64_t>& row_of, int threads) {
  LOAM_CHECK(from.shape() == to.shape(), "weights: shapes {} and {} differ", from.shape().str(), to.shape().str());
  LOAM_CHECK(row_of.empty() || static_cast<int64_t>(row_of.size()) == to.dim(0), "weights: an order of {} rows for {}",
             row_of.size(), to.dim(0));
  visit_float(from.dtype(), "weights", [&](auto in) {
    visit_float(to.dtype(), "weights",
                [&](auto out) { copy_typed<decltype(in), decltype(out)>(from, to, row_of, threads); });
  });
}

}  // namespace loam
