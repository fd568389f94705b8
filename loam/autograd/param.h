// Parameters as the tape sees them: references that are resolved again whenever they are needed, so that a weight may
// be gathered, dequantised or moved between forward and backward.
#pragma once

#include <cstdint>
#include <string>

#include "loam/tensor/tensor.h"

namespace loam {

// Where a gradient goes, CPU or GPU memory of the value's shape. False: none is wanted.
struct GradTarget {
  View view;
  bool accumulate = false;  // add to what is there; otherwise overwrite
  explicit operator bool() const { return static_cast<bool>(view); }
};

// Thread safety: value(), trainable() and name() from any thread; grad_target(), and writing where it points, from one
// at a time.
class ParamSource {
 public:
  virtual ~ParamSource() = default;
  virtual Tensor value(int32_t index) = 0;
  virtual bool trainable(int32_t index) const = 0;
  // For the next contribution to a trainable parameter's gradient (f32, the parameter's shape): overwrites the first
  // time since the gradients were cleared, accumulates after that. It counts as written from then on.
  virtual GradTarget grad_target(int32_t index) = 0;
  virtual const std::string& name(int32_t index) const = 0;
};

struct ParamRef {
  ParamSource* source = nullptr;
  int32_t index = -1;

  explicit operator bool() const { return source != nullptr; }
  Tensor value() const { return source->value(index); }
  bool trainable() const { return source && source->trainable(index); }
  bool operator==(const ParamRef&) const = default;
};

}  // namespace loam
