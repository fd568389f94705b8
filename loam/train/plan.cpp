#include <algorithm>
#include <cmath>

#include "loam/autograd/recompute.h"
#include "loam/base/clock.h"
#include "loam/kernels/kernel_table.h"
#include "loam/train/memory.h"
#include "loam/train/trainer.h"

namespace loam {
double measure_matmul_rate(const ExecContext& given, ComputeDtype dtype) {
  ExecContext ctx = given;
  ctx.tf32 = dtype == ComputeDtype::tf32;
  const bool gpu = ctx.device.kind == DeviceKind::cuda;
  const int64_t size = gpu ? 8192 : 768;
  const int repeats = gpu ? 8 : 25;  // the first one warms up; the best counts: others may use the machine
  const DType type = storage_dtype(dtype);
  const auto matrix = [&](DType element) {
    Tensor m = ctx.empty({size, size}, element, MemoryKind::workspace);
    ctx.kernels->fill(ctx, {m, 0.5f});
    return m;
  };
  const Tensor a = matrix(type), b = matrix(type), c = matrix(type);
  MatmulArgs args;
  args.a = a;
  args.b = b;
  args.transpose_b = true;
  args.c = c;
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const Stopwatch watch;
    ctx.kernels->matmul(ctx, args);
    if (ctx.handles) ctx.handles->synchronize();
    if (i > 0) best = std::min(best, watch.seconds());
  }
  return 2.0 * std::pow(static_cast<double>(size), 3) / best;
}

namespace {

double recomputed_flops_per_token(const TrainConfig& config) {
  const std::vector<int64_t> reruns = chain_reruns(config.model.layers, config.recompute.groups);
  double flops = 0;
  for (int64_t layer = 0; layer < config.model.layers; ++layer) {
    const BlockFlops block = block_flops_per_token(config.model, layer, config.data.length);
    const int64_t runs = reruns[static_cast<size_t>(layer)];
    flops += static_cast<double>(runs + recomputes_attention(config.recompute.part)) * block.attention +
             static_cast<double>(runs + recomputes_mlp(config.recompute.part)) * block.mlp;
  }
  return flops;
}

}  // namespace

RunPlan Trainer::plan(const ExecContext& ctx, const TrainConfig& config, int64_t train_tokens) {
  RunPlan plan;
  plan.parameters = parameter_count(config.model);
  plan.non_embedding_parameters = non_embedding_parameter_count(config.model);
  plan.tokens_per_step = config.batch * config.data.length;
  plan.tokens = plan.tokens_per_step * config.steps;
  plan.flops_per_step =
      training_flops_per_token(config.model, config.data.length) * static_cast<double>(plan.tokens_per_step);
  plan.recomputed_flops_per_step = recomputed_flops_per_token(config) * static_cast<double>(plan.tokens_per_step);
  if (train_tokens > 0) plan.epochs = static_cast<double>(plan.tokens) / static_cast<double>(train_tokens);
  plan.available_bytes = available_memory(ctx);
  return plan;
}

}  // namespace loam
