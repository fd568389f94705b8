// One recorded op. The tape knows no op; it knows this.
#pragma once

#include <functional>
#include <string_view>

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam {

// What a node may ask during its backward pass. Inputs, outputs and parameters are numbered as they were given to
// Tape::record.
class BackwardScope {
 public:
  virtual ~BackwardScope() = default;
  // The gradient that arrived at an output; an empty Tensor if none did.
  virtual Tensor output_grad(int output) = 0;
  // Where to put the gradient of an input (its shape and dtype); false if nobody wants it. Ask once per input and then
  // write it.
  virtual GradTarget input_grad(int input) = 0;
  // Instead of input_grad: the gradient of the input is this tensor, shared and not copied where possible.
  virtual void pass_input_grad(int input, const Tensor& gradient) = 0;
  // Where to put the gradient of a parameter; false if it is frozen. Ask once per use and then write it.
  virtual GradTarget param_grad(int param) = 0;
};

// REQUIRES of every node: inputs, outputs' gradients and what was saved are not written to.
//
// A node keeps what it needs as plain members (Tensor, ParamRef), never a weight tensor itself, so that kept memory can
// be seen.
class Node {
 public:
  int32_t module = 0;  // that recorded it, in a profile

  virtual ~Node() = default;
  virtual const char* name() const = 0;
  // The two halves can run apart (pipeline schedules run the second one later). backward() runs both and may fuse them.
  virtual void backward_input(const Context& ctx, BackwardScope& scope) = 0;
  virtual void backward_weight(const Context&, BackwardScope&) {}
  virtual void backward(const Context& ctx, BackwardScope& scope) {
    backward_input(ctx, scope);
    backward_weight(ctx, scope);
  }
  // Calls `visit` for every tensor that the node keeps alive.
  virtual void visit_saved(const std::function<void(std::string_view what, const Tensor& tensor)>& visit) const = 0;
};

}  // namespace loam
