#include "loam/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

Tensor zeros(const ExecContext& ctx, const Shape& shape, MemoryKind kind) {
  Tensor tensor = ctx.empty(shape, DType::f32, kind);
  ctx.kernels->fill(ctx, {.out = tensor, .value = 0});
  return tensor;
}

void check_group(const OptimGroup& group) {
  LOAM_CHECK(group.weight && group.gradient, "optimizer: {} has no weight or no gradient", group.name);
  LOAM_CHECK(group.weight.rank() == 1 && group.weight.shape() == group.gradient.shape(),
             "optimizer: {} has weights {} and gradients {}; both must be [n]", group.name, group.weight.shape().str(),
             group.gradient.shape().str());
  LOAM_CHECK(is_float(group.weight.dtype()), "optimizer: weights of {} are {}; f32, bf16 and f16 are supported",
             group.name, dtype_name(group.weight.dtype()));
  LOAM_CHECK(group.gradient.dtype() == DType::f32, "optimizer: gradients of {} are {}, not f32", group.name,
             dtype_name(group.gradient.dtype()));
  for (const OptimMatrix& matrix : group.matrices) {
    LOAM_CHECK(matrix.begin >= 0 && matrix.begin + matrix.rows * matrix.cols <= group.weight.numel(),
               "optimizer: a matrix of {} reaches beyond its {} elements", group.name, group.weight.numel());
  }
}

}  // namespace

Optimizer::Optimizer(const ExecContext& ctx, std::vector<OptimGroup> groups, const OptimizerConfig& config)
    : groups_(std::move(groups)), config_(config) {
  for (OptimGroup& group : groups_) {
    check_group(group);
    if (!group.rule) group.rule = rule_settings(config_);
    GroupState& state = states_.emplace_back(GroupState{rule_for(config_, group), group.weight, {}});
    if (group.weight.dtype() != DType::f32) {
      state.master = ctx.empty(group.weight.shape(), DType::f32, MemoryKind::moments);
      ctx.kernels->copy(ctx, {.in = group.weight, .out = state.master});
    }
    for (size_t i = 0; i < state.rule.state.size(); ++i) {
      state.kept.push_back(zeros(ctx, group.weight.shape(), MemoryKind::moments));
    }
  }
}

void Optimizer::prepare_step(StepState& state, double learning_rate, int64_t updates) {
  state.learning_rate = static_cast<float>(learning_rate);
  state.updates = updates;
  state.gradient_scale = 1;
  state.skip = 0;
}

void Optimizer::step(const ExecContext& ctx) {
  LOAM_CHECK(ctx.step, "optimizer: the context has no StepState");
  for (size_t i = 0; i < groups_.size(); ++i) {
    states_[i].rule.apply(ctx, {config_, groups_[i], states_[i].master, states_[i].kept});
  }
}

void Optimizer::masters_to_weights(const ExecContext& ctx) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].weight.dtype() != DType::f32) {
      ctx.kernels->copy(ctx, {.in = states_[i].master, .out = groups_[i].weight});
    }
  }
}

void clip_gradients(const ExecContext& ctx, const std::vector<OptimGroup>& groups, double max_norm, double* sums) {
  for (const OptimGroup& group : groups) ctx.kernels->sum_squares(ctx, {.x = group.gradient, .out = sums});
  ctx.kernels->clip(ctx, {.squares = sums, .losses = sums + 1, .max_norm = max_norm});
}

}  // namespace loam
