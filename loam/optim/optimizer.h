// Optimizers work on contiguous groups of parameters; which parameters these are is not their business.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loam/config/train_config.h"
#include "loam/kernels/exec_context.h"
#include "loam/tensor/tensor.h"

namespace loam {

// One contiguous run of parameters with equal settings. All tensors are [n].
struct OptimGroup {
  std::string name;  // for state files: "group.0"
  Tensor weight;     // f32 or bf16: what the model computes with
  Tensor gradient;   // f32
  double weight_decay = 0;
  double lr_scale = 1;
};

// AdamW (loam/kernels/optimizer.h has the formula). Owns the moments, and f32 masters of groups whose weights are bf16;
// for f32 groups the weights are the masters.
class Adamw {
 public:
  Adamw(const ExecContext& ctx, std::vector<OptimGroup> groups, const OptimizerConfig& config);

  // One step with the gradients that are there. `ctx.step` must point to this step's StepState (prepare_step, then
  // clipping).
  void step(const ExecContext& ctx);
  // For the step after `updates` (0, 1, ...) that were not skipped: sets learning rate, bias corrections for t =
  // updates + 1, gradient_scale 1 and skip 0.
  void prepare_step(StepState& state, double learning_rate, int64_t updates) const;

  const std::vector<OptimGroup>& groups() const { return groups_; }
  const Tensor& master(size_t group) const { return masters_[group]; }  // [n] f32
  const Tensor& moment1(size_t group) const { return m_[group]; }
  const Tensor& moment2(size_t group) const { return v_[group]; }
  // Rewrites the bf16 weights from the masters, after these were loaded.
  void masters_to_weights(const ExecContext& ctx);

 private:
  std::vector<OptimGroup> groups_;
  OptimizerConfig config_;
  std::vector<Tensor> masters_, m_, v_;
};

// The global L2 norm of all groups' gradients, in f64, and clipping by it: state.gradient_scale *= min(1, max_norm /
// (norm + 1e-6)), and state.skip = 1 if the norm is not finite. max_norm 0: only the finite check.
double clip_gradients(const ExecContext& ctx, const std::vector<OptimGroup>& groups, double max_norm, StepState& state);

}  // namespace loam
