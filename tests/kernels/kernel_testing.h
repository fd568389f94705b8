// Matrices with guarded borders, random values and comparisons for tests of kernels against f64 references.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "loam/kernels/kernel_table.h"
#include "tests/harness/cuda_mirror.h"

namespace loam::testing {

using Values = std::vector<double>;

// Half a unit in the last place of 1: the largest relative error of one rounding.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}
// Half the least number above 0: the largest absolute error of a rounding below the normal numbers. Of f16 alone they
// are of a size that is met.
inline double underflow(DType dtype) { return dtype == DType::f16 ? 0x1p-25 : 0; }
// What a float dtype holds of a value.
inline double rounded(DType dtype, double value) {
  return visit_float(dtype, "test", [&](auto type) {
    return static_cast<double>(static_cast<float>(decltype(type)(static_cast<float>(value))));
  });
}

inline Values random_values(int64_t n, uint64_t seed, double scale = 1) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0, scale);
  Values v(static_cast<size_t>(n));
  for (double& x : v) x = normal(engine);
  return v;
}

inline std::vector<int32_t> random_ids(int64_t n, int64_t limit, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<int32_t> v(static_cast<size_t>(n));
  for (int32_t& x : v) x = static_cast<int32_t>(engine() % static_cast<uint64_t>(limit));
  return v;
}

// Rows of a float dtype, `padding` elements apart. Every byte outside the rows holds a mark; intact() says whether they
// all still do.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t cols, int64_t padding = 0)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols + padding) {
    memory_.resize(static_cast<size_t>((rows * stride_ + 2 * kGuard) * dtype_size(dtype)), kMark);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) put(r, c, 0);
    }
  }
  Matrix(DType dtype, int64_t rows, int64_t cols, int64_t padding, const Values& values)
      : Matrix(dtype, rows, cols, padding) {
    EXPECT_EQ(static_cast<int64_t>(values.size()), rows * cols);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) put(r, c, values[static_cast<size_t>(r * cols_ + c)]);
    }
  }

  DType dtype() const { return dtype_; }
  View view() const { return {at(0, 0), dtype_, {}, {rows_, cols_}, {stride_, 1}}; }
  View row() const { return {at(0, 0), dtype_, {}, {cols_}, {1}}; }           // of a matrix with one row
  View column() const { return {at(0, 0), dtype_, {}, {rows_}, {stride_}}; }  // of a matrix with one column

  double get(int64_t r, int64_t c) const {
    return visit_float(dtype_, "test", [&](auto type) {
      return static_cast<double>(static_cast<float>(*static_cast<decltype(type)*>(at(r, c))));
    });
  }
  void put(int64_t r, int64_t c, double value) {
    visit_float(dtype_, "test", [&](auto type) {
      using T = decltype(type);
      *static_cast<T*>(at(r, c)) = T(static_cast<float>(value));
    });
  }
  Values values() const {
    Values v;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) v.push_back(get(r, c));
    }
    return v;
  }
  const std::vector<unsigned char>& memory() const { return memory_; }
  bool intact() const {
    const auto marks = [this](int64_t begin, int64_t end) {  // in elements
      const auto from = memory_.begin() + begin * dtype_size(dtype_), to = memory_.begin() + end * dtype_size(dtype_);
      return std::all_of(from, to, [](unsigned char byte) { return byte == kMark; });
    };
    if (!marks(0, kGuard) || !marks(kGuard + rows_ * stride_, 2 * kGuard + rows_ * stride_)) return false;
    for (int64_t r = 0; r < rows_; ++r) {
      if (!marks(kGuard + r * stride_ + cols_, kGuard + (r + 1) * stride_)) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 32;  // elements
  static constexpr unsigned char kMark = 0xA5;
  void* at(int64_t r, int64_t c) const {
    return const_cast<unsigned char*>(memory_.data()) + (kGuard + r * stride_ + c) * dtype_size(dtype_);
  }

  DType dtype_;
  int64_t rows_, cols_, stride_;
  std::vector<unsigned char> memory_;
};

inline View ids_view(std::vector<int32_t>& ids) {
  return {ids.data(), DType::i32, {}, {static_cast<int64_t>(ids.size())}, {1}};
}

inline double norm(const Values& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

// |actual - expected| <= tolerance * |expected| in the Euclidean norm.
inline void expect_close(const Values& actual, const Values& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  Values difference(actual.size());
  for (size_t i = 0; i < actual.size(); ++i) difference[i] = actual[i] - expected[i];
  EXPECT_LE(norm(difference), tolerance * norm(expected)) << what;
}

// A context on the CPU with `threads` threads, or as cuda_mirror.h says.
inline ExecResources cpu(int threads = 1) { return test_resources(threads); }

// Runs the body with every instruction set of this machine that kernels are compiled for.
template <class Body>
void for_each_target(Body&& body) {
#ifdef LOAM_STD_THREADS  // the kernels leave out most of them there (simd.h)
  return body();
#endif
  if (on_cuda()) return body();
  for (int64_t target : {HWY_SCALAR, HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    hwy::SetSupportedTargetsForTest(0);
    if (target != HWY_SCALAR && (hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

inline constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16}, kNarrow[] = {DType::bf16, DType::f16};
inline constexpr int64_t kSizes[] = {1, 3, 7, 17, 63, 65, 257};

}  // namespace loam::testing
