#include "loam/tensor/shape.h"

#include <fmt/format.h>

namespace loam {

std::string Dims::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

Dims contiguous_strides(const Shape& shape) {
  Dims strides = shape;
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

}  // namespace loam
