#include "loam/model/weight_copy.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "loam/base/parallel_for.h"

namespace loam {

float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = (bits >> 10) & 0x1Fu, mantissa = bits & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));  // infinity, NaN
  if (exponent > 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float small = std::ldexp(static_cast<float>(mantissa), -24);
  return sign ? -small : small;
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  const auto with_sign = [sign](uint32_t half) { return static_cast<uint16_t>(sign | half); };
  if (magnitude > 0x7F800000u) return with_sign(0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude < 0x38800000u) {  // below the least normal one: a multiple of 2^-24, added in float, which rounds
    return with_sign(std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u);
  }
  const uint32_t rounded = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  return with_sign(std::min(rounded - (112u << 10), 0x7C00u));
}

namespace {

// IEEE 754 binary16, for storage.
struct Half {
  uint16_t bits = 0;
  explicit Half(float value) : bits(float_to_half(value)) {}
};

float load(float value) { return value; }
float load(Bf16 value) { return static_cast<float>(value); }
float load(Half value) { return half_to_float(value.bits); }

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
        out[r * target.row_stride + c * target.col_stride] = To(load(row[c * source.col_stride]));
      }
    }
  });
}

template <class From>
void copy_from(const Tensor& from, const Tensor& to, const std::vector<int64_t>& row_of, int threads) {
  if (to.dtype() == DType::bf16) {
    copy_typed<From, Bf16>(from, to, row_of, threads);
  } else if (to.dtype() == DType::f16) {
    copy_typed<From, Half>(from, to, row_of, threads);
  } else {
    copy_typed<From, float>(from, to, row_of, threads);
  }
}

template <class T>
NonFinite count_typed(const T* values, int64_t count, int threads) {
  std::atomic<int64_t> nan{0}, infinite{0};
  parallel_for(threads, count, int64_t{1} << 16, [&](int64_t begin, int64_t end, int) {
    int64_t own_nan = 0, own_infinite = 0;
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(load(values[i])) & 0x7FFFFFFFu;
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
  const void* data = t.view().data;
  switch (t.dtype()) {
    case DType::f32:
      return count_typed(static_cast<const float*>(data), t.numel(), threads);
    case DType::bf16:
      return count_typed(static_cast<const Bf16*>(data), t.numel(), threads);
    case DType::f16:
      return count_typed(static_cast<const Half*>(data), t.numel(), threads);
    default:
      fail(ErrorCode::kInvalidArgument, "weights: dtype {} is not a float type", dtype_name(t.dtype()));
  }
}

void copy_weights(const Tensor& from, const Tensor& to, const std::vector<int64_t>& row_of, int threads) {
  LOAM_CHECK(from.shape() == to.shape(), "weights: shapes {} and {} differ", from.shape().str(), to.shape().str());
  LOAM_CHECK(row_of.empty() || static_cast<int64_t>(row_of.size()) == to.dim(0), "weights: an order of {} rows for {}",
             row_of.size(), to.dim(0));
  LOAM_CHECK(to.dtype() == DType::f32 || to.dtype() == DType::bf16 || to.dtype() == DType::f16,
             "weights: cannot convert to {}", dtype_name(to.dtype()));
  switch (from.dtype()) {
    case DType::f32:
      return copy_from<float>(from, to, row_of, threads);
    case DType::bf16:
      return copy_from<Bf16>(from, to, row_of, threads);
    case DType::f16:
      return copy_from<Half>(from, to, row_of, threads);
    default:
      fail(ErrorCode::kInvalidArgument, "weights: dtype {} is not a float type", dtype_name(from.dtype()));
  }
}

}  // namespace loam
