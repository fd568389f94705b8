// The context of an op: an ExecContext plus the tape it records on.
#pragma once

#include "loam/kernels/exec_context.h"
#include "loam/tensor/tensor.h"

namespace loam {

class Tape;

// A tensor together with its place on a tape. Without a place (id < 0) no gradient flows to it. A place means something
// on the tape that gave it only.
struct Var {
  Tensor value;
  int32_t id = -1;

  Var() = default;
  explicit Var(Tensor tensor, int32_t place = -1) : value(std::move(tensor)), id(place) {}
  const Shape& shape() const { return value.shape(); }
  DType dtype() const { return value.dtype(); }
};

// First argument of every op. `tape` null: nothing is recorded (validation, generation).
struct Context : ExecContext {
  Tape* tape = nullptr;

  Context() = default;
  explicit Context(const ExecContext& exec, Tape* recorder = nullptr) : ExecContext(exec), tape(recorder) {}
};

}  // namespace loam
