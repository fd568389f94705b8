// Small vectors of dimensions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "loam/base/error.h"

namespace loam {

inline constexpr int kMaxRank = 6;

// Sizes (or strides, in elements) of a tensor's axes, outermost first.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(std::span<const int64_t>(values.begin(), values.size())) {}
  explicit Dims(std::span<const int64_t> values) {
    LOAM_CHECK(values.size() <= kMaxRank, "tensor: {} axes, at most {} are supported", values.size(), kMaxRank);
    for (int64_t v : values) values_[static_cast<size_t>(rank_++)] = v;
  }
  int rank() const { return rank_; }
  // axis may be negative: -1 is the last one.
  int64_t operator[](int axis) const { return values_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }
  int64_t& operator[](int axis) { return values_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }
  void push_back(int64_t value) {
    LOAM_CHECK(rank_ < kMaxRank, "tensor: more than {} axes", kMaxRank);
    values_[static_cast<size_t>(rank_++)] = value;
  }
  int64_t product() const {
    int64_t p = 1;
    for (int64_t v : *this) p *= v;
    return p;
  }
  bool operator==(const Dims& other) const { return rank_ == other.rank_ && std::equal(begin(), end(), other.begin()); }
  std::string str() const;  // "[2, 3, 4]"

 private:
  std::array<int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

using Shape = Dims;

// Row-major strides: the last axis has stride 1.
Dims contiguous_strides(const Shape& shape);

}  // namespace loam
