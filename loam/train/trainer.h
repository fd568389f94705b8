// The training loop.
//
// A step: for each micro-batch fill -> forward -> loss / (targets of the whole step) -> backward into the groups' gradients; then clip, optimizer, metrics, and now and then validation,
// sample, checkpoint. A run that is stopped and resumed gives bit for bit what an uninterrupted one gives (at equal threads).
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
  int64_t step = 0;         // steps done after it
  double loss = 0;          // mean over the step's targets, in nats
  double grad_norm = 0;     // before clipping
  double learning_rate = 0;
  int64_t targets = 0;
  bool skipped = false;     // gradients were not finite; nothing was changed
};

struct ValResult {
  double loss = 0;  // nats a token, mean over all targets: independent of batch size
  double bits_per_byte = 0;
  int64_t targets = 0;
};

// What a run will need, known before it starts.
struct RunPlan {
  int64_t parameters = 0, non_embedding_parameters = 0;
  int64_t weight_bytes = 0, gradient_bytes = 0, moment_bytes = 0, activation_bytes = 0;  // activation_bytes: an estimate of the peak
  int64_t tokens_per_step = 0, tokens = 0;
  double flops_per_step = 0, epochs = 0;
  int64_t available_bytes = 0;  // memory of the machine
  bool fits() const { return weight_bytes + gradient_bytes + moment_bytes + activation_bytes <= available_bytes; }
};

struct RunOptions {
  Path out;                       // run directory
  enum class Resume { automatic, never } resume = Resume::automatic;
  std::optional<Path> resume_from;  // a checkpoint directory; overrides `resume`
  bool allow_changed_config = false;
  std::string tokenizer_files;    // directory whose tokenizer.json goes into MODEL directories
  std::vector<std::string> command_line;
  // Called for samples; gets the model with its current weights and returns the text to show. Empty: no samples.
  std::function<std::string(const Model& model)> sample;
  bool quiet = false;
};

class Trainer {
 public:
  // `config` must be derived. Allocates model and optimizer and initialises the weights.
  Trainer(const ExecContext& ctx, TrainConfig config, std::shared_ptr<const TokenSet> train, std::shared_ptr<const TokenSet> val);
  ~Trainer();

  static RunPlan plan(const TrainConfig& config, int64_t train_tokens);

  StepResult step();
  ValResult validate();
  int64_t steps_done() const;
  Model& model();
  const TrainConfig& config() const;

  // Writes and reads a complete state; load() continues bit for bit. Error if shapes, configuration or data do not agree.
  Path save(CheckpointStore& store, const Json& extra);
  Json load(const Path& checkpoint, bool allow_changed_config);
  // A MODEL directory from the f32 masters.
  void export_model(const Path& directory);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The whole run of `loam train`: resume, loop with progress, validation, samples, checkpoints, metrics, MODEL directory OUT/model at the end. On SIGINT or SIGTERM the step is finished, a checkpoint saved,
// and the run returns with `interrupted`.
struct RunSummary {
  int64_t steps = 0;
  double final_loss = 0, final_val_loss = 0, tokens_per_second = 0, seconds = 0;
  bool interrupted = false;
};
RunSummary run_training(const ExecContext& ctx, const TrainConfig& config, const RunOptions& options);

}  // namespace loam
