// The training loop.
//
// A step: for each micro-batch fill -> forward -> loss / (targets of the whole step) -> backward into the groups'
// gradients; then clip, optimizer, metrics, and now and then validation, sample, checkpoint. A run that is stopped and
// resumed gives bit for bit what an uninterrupted one gives (at equal threads).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/config/train_config.h"
#include "loam/data/loader.h"
#include "loam/format/checkpoint.h"
#include "loam/kernels/exec_context.h"
#include "loam/model/model_files.h"
#include "loam/optim/optimizer.h"
#include "loam/train/metrics.h"

namespace loam {

struct StepResult {
  int64_t step = 0;      // steps done after it
  double loss = 0;       // mean over the step's targets, in nats
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t targets = 0;
  bool skipped = false;  // gradients were not finite, or there was no target at all; no weight was changed
};

struct ValResult {
  double loss = 0;  // nats a token, mean over all targets: independent of batch size
  double bits_per_byte =
      0;  // loss / ln 2 * tokens / text bytes, the last two of the whole set; 0 if the bytes are not known
  int64_t targets = 0;
};

// The configuration of a run on this data: vocab_size 0 becomes the data's, rounded up to a multiple of 64; then
// derive().
TrainConfig config_for_data(TrainConfig config, const TokenSetInfo& data);

// What a run will need, known before it starts.
struct RunPlan {
  int64_t parameters = 0, non_embedding_parameters = 0;
  int64_t weight_bytes = 0, gradient_bytes = 0, moment_bytes = 0,
          activation_bytes = 0;  // activation_bytes: an estimate of the peak
  int64_t tokens_per_step = 0, tokens = 0;
  double flops_per_step = 0, epochs = 0;
  int64_t available_bytes = 0;  // memory of the machine
  int64_t total_bytes() const { return weight_bytes + gradient_bytes + moment_bytes + activation_bytes; }
  bool fits() const { return total_bytes() <= available_bytes; }
};

struct RunOptions {
  Path out;  // run directory
  enum class Resume { automatic, never } resume = Resume::automatic;
  std::optional<Path> resume_from;  // a checkpoint directory; overrides `resume`
  bool allow_changed_config = false;
  bool force = false;   // with Resume::never: what an earlier run left in `out` is removed
  std::string version;  // of the program, for checkpoints and metrics
  std::vector<std::string> command_line;
  // Called for samples; gets the model with its current weights and returns the text to show. Empty: no samples.
  std::function<std::string(const Model& model)> sample;
  bool quiet = false;
};

// Floating-point operations a second of this machine's matrix product in a dtype, from a few products of 768 x 768
// matrices (some 50 ms): what a run's rate is measured against.
double measure_matmul_rate(const ExecContext& ctx, ComputeDtype dtype);

class Trainer {
 public:
  // `config` must be derived. Allocates model and optimizer and initialises the weights. `val` may be null.
  // Error{kInvalidArgument} if the data have ids that the model's vocabulary lacks.
  Trainer(const ExecContext& ctx, TrainConfig config, std::shared_ptr<const TokenSet> train,
          std::shared_ptr<const TokenSet> val);
  ~Trainer();

  static RunPlan plan(const TrainConfig& config, int64_t train_tokens);
  // The estimate in it: bytes at the peak of a step beyond weights, gradients and moments.
  static int64_t activation_bytes(const TrainConfig& config);

  // One optimizer step: the rows of `batch` samples from global sample steps_done * batch on, in micro-batches. The
  // loss of each target weighs the same, whatever the cut.
  StepResult step();
  // The first val_rows windows of the validation set, in order.
  ValResult validate();
  int64_t steps_done() const;
  Model& model();
  const TrainConfig& config() const;

  // Writes and reads a complete state; load() continues bit for bit, and returns the `extra` of save(). Error if
  // shapes, configuration or data do not agree. Settings that only say what is logged, kept or shown (and `steps` under
  // a constant rate) may always change, others with allow_changed_config. Another number of threads is a warning.
  Path save(CheckpointStore& store, const Json& extra);
  Json load(const Path& checkpoint, bool allow_changed_config);
  // A MODEL directory from the f32 masters.
  void export_model(const Path& directory);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The whole run of `loam train` on config.data.path: resume, loop with progress, validation, samples, checkpoints,
// metrics, MODEL directory OUT/model with the data's tokenizer.json at the end. On SIGINT or SIGTERM the step is
// finished, a checkpoint saved, and the run returns with `interrupted`.
struct RunSummary {
  int64_t steps = 0;
  double final_loss = 0, final_val_loss = 0, tokens_per_second = 0, seconds = 0;
  bool interrupted = false;
};
RunSummary run_training(const ExecContext& ctx, const TrainConfig& config, const RunOptions& options);

}  // namespace loam
