// The memory of a step, from running it with kernels that do nothing in an arena whose memory is not touched.
#include <algorithm>
#include <cmath>

#include "loam/kernels/kernel_table.h"
#include "loam/train/trainer_state.h"

namespace loam {
namespace {

constexpr double kNoMachine = 0x1p60;          // bytes: sizes beyond it are not told apart
constexpr int64_t kTokens = int64_t{1} << 20;  // of a micro-batch that is run as it is

// Those with workspace to speak of are the real ones: in a sparse arena they do nothing else but take it.
KernelTable idle_kernels(const KernelTable& real, DeviceKind device) {
  KernelTable table;
#define LOAM_KERNEL(name, Args) table.name.function = [](const ExecContext&, const Args&) {};
#include "loam/kernels/kernels.def"
#undef LOAM_KERNEL
  // Backward looks at the gradient that it begins with.
  table.fill.function = [](const ExecContext&, const FillArgs& args) {
    if (args.out.numel() == 1 && args.out.dtype == DType::f32) *args.out.ptr<float>() = args.value;
  };
  table.matmul = real.matmul;
  table.attention_fwd = real.attention_fwd;
  table.attention_bwd = real.attention_bwd;
  table.orthogonalize = real.orthogonalize;
  if (device == DeviceKind::cpu) return table;
  table.rms_norm_bwd = real.rms_norm_bwd;
  table.layer_norm_bwd = real.layer_norm_bwd;
  table.embedding_bwd = real.embedding_bwd;
  table.sum_rows = real.sum_rows;
  return table;
}

void fill_rows(TokenBatch& batch, int64_t rows, int64_t length) {
  const auto n = static_cast<size_t>(rows * length);
  batch.rows = rows;
  batch.length = length;
  batch.tokens.assign(n, 0);
  batch.targets.assign(n, 0);
  batch.first_key.assign(n, 0);
  batch.positions.resize(n);
  for (size_t i = 0; i < n; ++i) batch.positions[i] = static_cast<int32_t>(i % static_cast<size_t>(length));
}

// Two steps of one micro-batch of `rows`, the second with details if the run has some.
ArenaStats stats_of_steps(const ExecContext& context, TrainConfig config, int64_t rows) {
  Arena::Options options;
  options.sparse = true;
  const auto arena = Arena::create(context.device, options);
  const KernelTable idle = idle_kernels(*context.kernels, context.device.kind);
  ExecContext ctx = context;
  ctx.arena = arena.get();
  ctx.kernels = &idle;
  ctx.profile = nullptr;
  config.batch = config.micro_batch = rows;
  config.detail_every = config.detail_every > 0 ? 2 : 0;
  Trainer::State state(ctx, config, {});
  LaunchedStep step;
  fill_rows(step.batch, rows, config.data.length);
  step.result.targets = rows * config.data.length;
  for (const int64_t number : {1, 2}) {
    step.result.step = number;
    state.run_step(step, {});
  }
  return arena->stats();
}

PredictedMemory of(const ArenaStats& stats) {
  const auto at_end = [&](MemoryKind kind) { return stats.bytes[static_cast<size_t>(kind)]; };
  PredictedMemory memory;
  memory.weights = at_end(MemoryKind::weights);
  memory.gradients = at_end(MemoryKind::gradients);
  memory.moments = at_end(MemoryKind::moments);
  const int64_t beyond = stats.total_peak - memory.total();
  memory.workspace = std::min(beyond, stats.peak[static_cast<size_t>(MemoryKind::workspace)]);
  memory.activations = beyond - memory.workspace;
  return memory;
}

// `from` and so many times the difference that a row made.
int64_t with_rows(int64_t from, int64_t fewer, int64_t rows) {
  const double bytes = static_cast<double>(from) + static_cast<double>(from - fewer) * static_cast<double>(rows);
  return static_cast<int64_t>(std::min(bytes, kNoMachine));
}

}  // namespace

PredictedMemory predict_memory(const ExecContext& ctx, const TrainConfig& config) {
  // What a step takes grows by the same amount with each row once there are a few.
  const int64_t rows = std::min(config.micro_batch, std::max<int64_t>(2, kTokens / config.data.length));
  try {
    PredictedMemory memory = of(stats_of_steps(ctx, config, rows));
    if (rows < config.micro_batch) {
      const PredictedMemory fewer = of(stats_of_steps(ctx, config, rows - 1));
      memory.activations = with_rows(memory.activations, fewer.activations, config.micro_batch - rows);
      memory.workspace = with_rows(memory.workspace, fewer.workspace, config.micro_batch - rows);
    }
    memory.activations += StepMemory::bytes_of_row(config) * (config.batch - config.micro_batch);
    return memory;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    const double parameters = static_cast<double>(parameter_count(config.model));
    const auto limited = [](double bytes) { return static_cast<int64_t>(std::min(bytes, kNoMachine)); };
    return {limited(4 * parameters), limited(4 * parameters), limited(8 * parameters), limited(kNoMachine), 0};
  }
}

}  // namespace loam
