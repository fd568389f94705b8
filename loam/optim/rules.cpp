#include "loam/optim/rules.h"

#include <algorithm>
#include <cmath>

#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

float f32(double value) { return static_cast<float>(value); }

// What the arguments of all rules begin with.
template <class Args>
Args args_for(const RuleInput& in) {
  Args args;
  args.master = in.master;
  if (in.group.weight.dtype() != DType::f32) args.weight = in.group.weight;
  args.gradient = in.group.gradient;
  args.lr_scale = f32(in.group.lr_scale);
  args.weight_decay = f32(in.group.weight_decay);
  return args;
}

AdamForm form_of(const RuleInput& in) {
  if (in.group.rule->kind == OptimizerKind::adam) return AdamForm::l2;
  return in.config.form == AdamwForm::course ? AdamForm::course : AdamForm::decoupled;
}

void adam(const ExecContext& ctx, const RuleInput& in) {
  auto args = args_for<AdamwArgs>(in);
  args.m = in.kept[0];
  args.v = in.kept[1];
  args.beta1 = in.group.rule->beta1;
  args.beta2 = in.group.rule->beta2;
  args.eps = f32(in.group.rule->eps);
  args.form = form_of(in);
  ctx.kernels->adamw(ctx, args);
}

void sgd(const ExecContext& ctx, const RuleInput& in) {
  auto args = args_for<SgdArgs>(in);
  if (!in.kept.empty()) args.buffer = in.kept[0];
  args.momentum = f32(in.config.momentum);
  args.dampening = in.config.dampening;
  args.nesterov = in.config.nesterov;
  ctx.kernels->sgd(ctx, args);
}

void adagrad(const ExecContext& ctx, const RuleInput& in) {
  auto args = args_for<AdagradArgs>(in);
  args.sum = in.kept[0];
  args.eps = f32(in.group.rule->eps);
  ctx.kernels->adagrad(ctx, args);
}

void rmsprop(const ExecContext& ctx, const RuleInput& in) {
  auto args = args_for<RmspropArgs>(in);
  args.v = in.kept[0];
  if (in.kept.size() > 1) args.buffer = in.kept[1];
  args.alpha = in.config.alpha;
  args.eps = f32(in.group.rule->eps);
  args.momentum = f32(in.config.momentum);
  ctx.kernels->rmsprop(ctx, args);
}

void lion(const ExecContext& ctx, const RuleInput& in) {
  auto args = args_for<LionArgs>(in);
  args.m = in.kept[0];
  args.beta1 = in.group.rule->beta1;
  args.beta2 = in.group.rule->beta2;
  ctx.kernels->lion(ctx, args);
}

// Jordan et al. 2024; match_rms: Liu et al. 2025, "Muon is Scalable for LLM Training".
double muon_scale(MuonScale rule, const OptimMatrix& matrix) {
  const auto rows = static_cast<double>(matrix.rows), cols = static_cast<double>(matrix.cols);
  if (rule == MuonScale::match_rms) return 0.2 * std::sqrt(std::max(rows, cols));
  return std::sqrt(std::max(1.0, rows / cols));
}

void muon(const ExecContext& ctx, const RuleInput& in) {
  // Before the products, which are most of the work; a GPU's state is not the host's to read.
  if (ctx.device.kind == DeviceKind::cpu && ctx.step->skip != 0) return;
  const OptimizerConfig& config = in.config;
  for (const OptimMatrix& matrix : in.group.matrices) {
    const int64_t n = matrix.rows * matrix.cols;
    const auto part = [&](const Tensor& run) { return run.narrow(0, matrix.begin, n); };
    const Tensor update = ctx.empty({n}, DType::f32, MemoryKind::workspace);
    ctx.kernels->muon_momentum(ctx, {.gradient = part(in.group.gradient),
                                     .m = part(in.kept[0]),
                                     .out = update,
                                     .momentum = config.muon_momentum,
                                     .nesterov = config.muon_nesterov});
    ctx.kernels->orthogonalize(
        ctx, {.x = update.reshape({matrix.rows, matrix.cols}), .steps = static_cast<int>(config.muon_steps)});
    auto args = args_for<MuonApplyArgs>(in);
    args.master = part(in.master);
    if (args.weight) args.weight = part(in.group.weight);
    args.update = update;
    args.scale = f32(muon_scale(config.muon_scale, matrix));
    if (config.muon_lr > 0) args.lr_scale = f32(in.group.lr_scale * config.muon_lr / config.lr);
    ctx.kernels->muon_apply(ctx, args);
  }
}

}  // namespace

UpdateRule rule_for(const OptimizerConfig& config, const OptimGroup& group) {
  const bool momentum = config.momentum > 0;
  switch (group.rule->kind) {
    case OptimizerKind::adamw:
    case OptimizerKind::adam:
      return {{"m", "v"}, adam};
    case OptimizerKind::sgd:
      return {momentum ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}, sgd};
    case OptimizerKind::adagrad:
      return {{"sum"}, adagrad};
    case OptimizerKind::rmsprop:
      return {momentum ? std::vector<std::string>{"v", "momentum"} : std::vector<std::string>{"v"}, rmsprop};
    case OptimizerKind::lion:
      return {{"m"}, lion};
    case OptimizerKind::muon:
      if (group.matrices.empty()) return {{"m", "v"}, adam};
      return {{"momentum"}, muon};
  }
  fail(ErrorCode::kInternal, "optimizer: a kind without a rule");
}

}  // namespace loam
