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

namespace loam {

struct StepResult {
  int64_t step = 0;                 // steps done after it
  std::optional<double> loss;       // mean over the step's targets, in nats; none without a target
  std::optional<double> grad_norm;  // before clipping; none without a target
  double learning_rate = 0;
  int64_t targets = 0;
  bool skipped = false;  // gradients were not finite, or there was no target at all; no weight was changed
  // Given up half way, or the loss is not finite: nothing has changed, and the same step comes next.
  bool abandoned = false;
};

// Asked while a step or a validation runs: at least `done` of `all` rows are through; true gives it up.
using StopFunction = std::function<bool(int64_t done, int64_t all)>;

struct ValResult {
  double loss = 0;  // nats a token, mean over all targets: independent of batch size
  // loss / ln 2 * tokens / text bytes, the last two of the whole set: tokens that are no target (rows that are not
  // scored, and first tokens of documents that nothing stands before) count as if they cost the mean. None if the bytes
  // are not known.
  std::optional<double> bits_per_byte;
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
  std::optional<int64_t> available_bytes;  // loam/train/memory.h
  int64_t total_bytes() const { return weight_bytes + gradient_bytes + moment_bytes + activation_bytes; }
  // False only if it is known not to.
  bool fits() const { return !available_bytes || total_bytes() <= *available_bytes; }
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
};

// Floating-point operations a second of this machine's matrix product in a dtype, from a few products of 768 x 768
// matrices (some 50 ms): what a run's rate is measured against.
double measure_matmul_rate(const ExecContext& ctx, ComputeDtype dtype);

// The configuration of a run on this data, with its warnings said. Error if no MODEL directory could hold the result.
TrainConfig check_config(const TrainConfig& config, const TokenSetInfo& data);

class Trainer {
 public:
  // `config` must be derived; its numerics replace those of `ctx`. Allocates model and optimizer and initialises the
  // weights. `val` may be null.
  // Error{kInvalidArgument} if the data have ids that the model's vocabulary lacks, or are shorter than a row.
  Trainer(const ExecContext& ctx, TrainConfig config, std::shared_ptr<const TokenSet> train,
          std::shared_ptr<const TokenSet> val);
  ~Trainer();

  // The same errors without the model.
  static void check_data(const TrainConfig& config, const std::shared_ptr<const TokenSet>& train,
                         const std::shared_ptr<const TokenSet>& val);
  // Those of load().
  static void check_checkpoint(const VerifiedCheckpoint& checkpoint, const TrainConfig& config, const TokenSet& train,
                               const TokenSet* val, bool allow_changed_config);

  static RunPlan plan(const TrainConfig& config, int64_t train_tokens);
  // The estimate in it: bytes at the peak of a step beyond weights, gradients and moments.
  static int64_t activation_bytes(const TrainConfig& config);

  // One optimizer step: the rows of `batch` samples from global sample steps_done * batch on, in micro-batches. The
  // loss of each target weighs the same, whatever the cut. `stop` is asked before each op of the forward and backward
  // passes.
  StepResult step(const StopFunction& stop = {});
  // The first val_rows windows of the validation set, in order. nullopt if there is no target in them, or `stop` gave
  // it up.
  std::optional<ValResult> validate(const StopFunction& stop = {});
  int64_t steps_done() const;
  Model& model();
  const TrainConfig& config() const;

  // Writes and reads a complete state; load() continues bit for bit, and returns the `extra` of save(). Error if
  // shapes, configuration or data do not agree. Settings that only say what is logged, kept or shown (and `steps` under
  // a constant rate) may always change, others with allow_changed_config. Another number of threads is a warning.
  Path save(CheckpointStore& store, const Json& extra);
  Json load(const VerifiedCheckpoint& checkpoint, bool allow_changed_config);
  // A MODEL directory from the f32 masters, in the compute dtype.
  void export_model(const Path& directory);

  struct State;  // for its source files: loam/train/trainer_state.h

 private:
  std::unique_ptr<State> state_;
};

// The whole run of `loam train` on config.data.path: resume, loop with progress, validation, samples, checkpoints,
// metrics, MODEL directory OUT/model with the data's tokenizer at the end. On SIGINT or SIGTERM (within an
// InterruptScope) it says so at once, finishes the step or, if that would take more than a few seconds, gives it up
// (after the op that runs; a validation, after the micro-batch that runs), saves a checkpoint and returns with
// `interrupted`; the same call goes on from there, bit for bit.
//
// If a loss is not finite, twenty steps in a row change nothing, or the last one does not because its gradient is not
// finite, `stopped` is recorded and the call ends in Error{kInvalidArgument}, which names the last good checkpoint: the
// state is saved only where the last loss and gradient were finite. So it is on every other Error.
struct RunSummary {
  int64_t steps = 0;
  // Of what this call did; none if it did no such thing.
  std::optional<double> final_loss, final_val_loss, tokens_per_second;
  double seconds = 0;  // of training in all, earlier lives of the run included
  bool interrupted = false;
};
// What a run starts with. Finding it makes every check of run_training that needs no memory for the model, and writes
// nothing; without `out` in the options none of what is there.
struct RunStart {
  std::shared_ptr<const TokenSet> train, val;  // val: null if there is none
  TrainConfig config;
  std::optional<VerifiedCheckpoint> checkpoint;
};
RunStart check_run(const TrainConfig& config, const RunOptions& options);
RunSummary run_training(const ExecContext& ctx, const TrainConfig& config, const RunOptions& options);

}  // namespace loam
