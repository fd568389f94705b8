// Optimizers work on contiguous groups of parameters; which parameters these are is not their business.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loam/config/train_config.h"
#include "loam/kernels/exec_context.h"
#include "loam/optim/rules.h"
#include "loam/tensor/tensor.h"

namespace loam {

// Gives every group its rule (loam/optim/rules.h) and owns what the rules keep, and f32 masters of groups whose weights
// are bf16; for f32 groups the weights are the masters.
class Optimizer {
 public:
  Optimizer(const ExecContext& ctx, std::vector<OptimGroup> groups, const OptimizerConfig& config);

  // One step with the gradients that are there. `ctx.step` must point to this step's StepState (prepare_step, then
  // clipping).
  void step(const ExecContext& ctx);
  // For the step after `updates` (0, 1, ...) that were not skipped, with gradient_scale 1 and skip 0.
  static void prepare_step(StepState& state, double learning_rate, int64_t updates);

  const std::vector<OptimGroup>& groups() const { return groups_; }
  const Tensor& master(size_t group) const { return states_[group].master; }  // [n] f32
  // What the group's rule keeps, [n] f32 each, in the order of state_names().
  const std::vector<Tensor>& state(size_t group) const { return states_[group].kept; }
  // Under these names checkpoints have it.
  const std::vector<std::string>& state_names(size_t group) const { return states_[group].rule.state; }
  // Rewrites the weights of 16 bits from the masters, after these were loaded.
  void masters_to_weights(const ExecContext& ctx);

 private:
  struct GroupState {
    UpdateRule rule;
    Tensor master;
    std::vector<Tensor> kept;
  };
  std::vector<OptimGroup> groups_;
  OptimizerConfig config_;
  std::vector<GroupState> states_;
};

// Adds the squares of all groups' gradients to sums[0] and clips by it, with sums[1] for the losses: ClipArgs in
// loam/kernels/optimizer.h. Both begin as 0, in the device's memory; the gradients' global L2 norm is sqrt(sums[0]).
void clip_gradients(const ExecContext& ctx, const std::vector<OptimGroup>& groups, double max_norm, double* sums);

}  // namespace loam
