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
  LOAM_CHECK(group.weight && group.gradient, "adamw: {} has no weight or no gradient", group.name);
  LOAM_CHECK(group.weight.rank() == 1 && group.weight.shape() == group.gradient.shape(),
             "adamw: {} has weights {} and gradients {}; both must be [n]", group.name, group.weight.shape().str(),
             group.gradient.shape().str());
  LOAM_CHECK(group.weight.dtype() == DType::f32 || group.weight.dtype() == DType::bf16,
             "adamw: weights of {} are {}; f32 and bf16 are supported", group.name, dtype_name(group.weight.dtype()));
  LOAM_CHECK(group.gradient.dtype() == DType::f32, "adamw: gradients of {} are {}, not f32", group.name,
             dtype_name(group.gradient.dtype()));
}

}  // namespace

Adamw::Adamw(const ExecContext& ctx, std::vector<OptimGroup> groups, const OptimizerConfig& config)
    : groups_(std::move(groups)), config_(config) {
  for (const OptimGroup& group : groups_) {
    check_group(group);
    Tensor master = group.weight;
    if (group.weight.dtype() != DType::f32) {
      master = ctx.empty(group.weight.shape(), DType::f32, MemoryKind::moments);
      ctx.kernels->copy(ctx, {.in = group.weight, .out = master});
    }
    masters_.push_back(std::move(master));
    m_.push_back(zeros(ctx, group.weight.shape(), MemoryKind::moments));
    v_.push_back(zeros(ctx, group.weight.shape(), MemoryKind::moments));
  }
}

void Adamw::prepare_step(StepState& state, double learning_rate, int64_t updates) const {
  const double t = static_cast<double>(updates) + 1;
  state.learning_rate = static_cast<float>(learning_rate);
  // In double: 1 - beta^t loses all digits of a float when beta is near 1.
  state.beta1_correction = static_cast<float>(1 - std::pow(config_.beta1, t));
  state.beta2_correction = static_cast<float>(1 - std::pow(config_.beta2, t));
  state.gradient_scale = 1;
  state.skip = 0;
}

void Adamw::step(const ExecContext& ctx) {
  LOAM_CHECK(ctx.step, "adamw: the context has no StepState");
  for (size_t i = 0; i < groups_.size(); ++i) {
    const OptimGroup& group = groups_[i];
    AdamwArgs args;
    args.master = masters_[i];
    if (group.weight.dtype() != DType::f32) args.weight = group.weight;
    args.gradient = group.gradient;
    args.m = m_[i];
    args.v = v_[i];
    args.lr_scale = static_cast<float>(group.lr_scale);
    args.beta1 = static_cast<float>(config_.beta1);
    args.beta2 = static_cast<float>(config_.beta2);
    args.eps = static_cast<float>(config_.eps);
    args.weight_decay = static_cast<float>(group.weight_decay);
    ctx.kernels->adamw(ctx, args);
  }
}

void Adamw::masters_to_weights(const ExecContext& ctx) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].weight.dtype() != DType::f32) {
      ctx.kernels->copy(ctx, {.in = masters_[i], .out = groups_[i].weight});
    }
  }
}

double clip_gradients(const ExecContext& ctx, const std::vector<OptimGroup>& groups, double max_norm,
                      StepState& state) {
  double sum = 0;
  for (const OptimGroup& group : groups) ctx.kernels->sum_squares(ctx, {.x = group.gradient, .out = &sum});
  const double norm = std::sqrt(sum);
  if (!std::isfinite(norm)) {
    state.skip = 1;
  } else if (max_norm > 0) {
    state.gradient_scale *= static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
  }
  return norm;
}

}  // namespace loam
