// Reverse-mode differentiation by a tape: ops record nodes as they run, backward() walks them in reverse.
//
// Values are numbered; each has a slot for its gradient, in the value's dtype. The first contribution overwrites the
// slot, later ones accumulate. A gradient that an op hands through (residual adds) is shared between slots and copied
// only if someone must add to it while another still needs it. Several tapes can live at once (one a micro-batch).
//
// Errors: whatever an op or a node throws passes through. After one from backward() or from a segment the tape is good
// for clear() only, and the gradients of parameters are those of part of the nodes.
// Thread safety: a tape belongs to one thread, and so do the gradients of the parameters that its backward() reaches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "loam/autograd/context.h"
#include "loam/autograd/node.h"
#include "loam/autograd/param.h"
#include "loam/autograd/recompute.h"

namespace loam {

class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // A value whose gradient is wanted: grad() gives it after backward().
  Var leaf(Tensor value);
  // Empty if no gradient flowed. To be read only: it may be memory that was handed to backward().
  Tensor grad(const Var& leaf) const;

  // True if `var` lies on this tape, so that something upstream wants its gradient.
  bool wants_grad(const Var& var) const;

  // Records `node`, which computed `outputs` from `inputs` and `params`, and places the outputs on the tape; does
  // nothing (drops the node) if no input and no parameter wants a gradient. Counts the use of each trainable parameter.
  void record(std::unique_ptr<Node> node, std::span<const Var> inputs, std::span<Var* const> outputs,
              std::span<const ParamRef> params = {});

  // A value that is a part of `parent` (a strided view of it): its gradient is the same part of the parent's gradient,
  // so that nothing is copied when a fused projection is split. REQUIRES: the different parts taken of one parent at a
  // time (by one op) do not overlap. Parts that receive no gradient count as zero.
  Var part(const Var& parent, const Tensor& view);

  struct BackwardOptions {
    // Run only backward_input now; backward_weights() runs the rest. For stages of a pipeline, which send the gradient
    // of their input first.
    bool keep_weight_half = false;
  };
  // Seeds the gradient of the scalar `root` (one f32 element) with 1 and runs all nodes in reverse. Each node, and what
  // it saved, is freed once it has run. Error{kInvalidArgument} if root is not on the tape or not a scalar.
  void backward(const Context& ctx, const Var& root, BackwardOptions options);
  void backward(const Context& ctx, const Var& root) { backward(ctx, root, BackwardOptions{}); }
  // The same from any values with given gradients (a pipeline stage).
  void backward(const Context& ctx, std::span<const Var> roots, std::span<const Tensor> gradients,
                BackwardOptions options);
  void backward_weights(const Context& ctx);

  // What recompute() does when it records: runs the segment for its values, and keeps it to be recorded here when
  // backward reaches it.
  std::vector<Var> record_segment(const Context& ctx, const Segment& segment, const std::vector<Var>& inputs);
  // False while a segment runs for its values: uses of parameters are counted then, nodes are dropped. An op that does
  // work of its backward pass in forward asks first.
  bool keeps() const;

  // Called once for each trainable parameter when all its uses recorded on this tape have put in their gradient: for
  // gradients that are sent while backward still runs. When gradients are accumulated it belongs on the last tape
  // alone.
  void on_param_ready(std::function<void(const ParamRef&)> hook);

  // Called before each op is recorded, in forward and when a segment runs again, and before each node runs in backward.
  // What it throws passes through: a way to give up.
  void before_node(std::function<void()> hook);

  // Bytes of distinct storages that nodes keep for backward, and a walk over them: for tests and accounts of memory.
  int64_t saved_bytes() const;
  void visit_saved(
      const std::function<void(const char* node, std::string_view what, const Tensor& tensor)>& visit) const;
  int64_t size() const;  // nodes recorded and not yet run
  // Forgets all values, nodes and gradients; the hooks stay.
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
