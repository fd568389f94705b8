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
#include <span>
#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/config/train_config.h"
#include "loam/data/mixture.h"
#include "loam/format/checkpoint.h"
#include "loam/kernels/exec_context.h"
#include "loam/model/model_files.h"
#include "loam/tensor/dtype.h"
#include "loam/train/details.h"
#include "loam/train/energy.h"
#include "loam/train/spikes.h"

namespace loam {

struct RunSource;

struct StepResult {
  int64_t step = 0;                 // steps done after it
  std::optional<double> loss;       // mean over the step's targets, in nats; none without a target
  std::optional<double> grad_norm;  // before clipping; none without a target
  double learning_rate = 0;
  int64_t targets = 0;
  // Gradients were not finite, there was no target at all, or it is a spike to be skipped; no weight was changed.
  bool skipped = false;
  // Given up half way, or the loss is not finite, or a spike asks for a rewind: nothing has changed, and the same step
  // comes next.
  bool abandoned = false;
  std::optional<Spike> spike;
  std::vector<LayerDetail> layers;  // on the steps of detail_every
  // Under fp16: the loss scale that the next step has, and whether this step was skipped because its own was too high,
  // which is no fault of data or weights. At kLeastLossScale it is not.
  std::optional<double> loss_scale;
  bool overflow = false;
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

// The configuration of a run on this device: dtype auto becomes bf16 on a GPU and f32 on the CPU. Error for a dtype
// that the device does not have.
TrainConfig config_for_device(TrainConfig config, Device device);
DType storage_dtype(ComputeDtype dtype);  // of matrices and activations

// Bytes at the peak of a step: the parts that stay (gradients: those of the parameters), what kernels work in, and all
// that is there beyond these.
struct PredictedMemory {
  int64_t weights = 0, gradients = 0, moments = 0, activations = 0, workspace = 0;
  int64_t total() const { return weights + gradients + moments + activations + workspace; }
  // "1.0 MB weights + ... = 9.0 MB"; those that are 0 are left out.
  std::string str() const;
};
// Runs the ops of a step on this device with kernels that do nothing, and without the memory. Takes milliseconds. Sizes
// that no machine has are 2^60.
PredictedMemory predict_memory(const ExecContext& ctx, const TrainConfig& config);

// "At the peak: weights 1.0 MB, ...; the machine has 2.0 GB left", of the context's arena.
std::string memory_at_peak(const ExecContext& ctx);

// What to do about too little memory: two changes that fit into `available`, from the mildest on, and what they take. A
// smaller micro_batch, activations that are computed again, shorter rows (of at least 16 tokens); all of them together
// if none fits alone, and at last a smaller model.
std::string memory_advice(const ExecContext& ctx, const TrainConfig& config, std::optional<int64_t> available);

// The configuration with a number for a micro_batch of auto: that of the checkpoint that the run goes on from, else the
// largest divisor of the batch whose step fits into 90 % of available_memory(ctx), which it says. Error{kOutOfMemory}
// with advice if not even one row fits.
TrainConfig settle_micro_batch(const ExecContext& ctx, TrainConfig config,
                               const std::optional<VerifiedCheckpoint>& checkpoint);

// What a run will need, known before it starts.
struct RunPlan {
  int64_t parameters = 0, non_embedding_parameters = 0;
  PredictedMemory memory;  // 0 until predict_memory() is asked
  int64_t tokens_per_step = 0, tokens = 0;
  double flops_per_step = 0, epochs = 0;   // of the model: what mfu counts
  double recomputed_flops_per_step = 0;    // that recompute adds to them
  std::optional<int64_t> available_bytes;  // on its device: loam/train/memory.h
  // False only if it is known not to.
  bool fits() const { return !available_bytes || memory.total() <= *available_bytes; }
};

struct RunOptions {
  Path out;  // run directory
  enum class Resume { automatic, never } resume = Resume::automatic;
  std::optional<Path> resume_from;  // a checkpoint directory; overrides `resume`
  // A run that begins does so with the state of another run's checkpoint, or with the weights of a MODEL directory: one
  // of the two, and not with resume_from.
  std::optional<Path> branch, init_from;
  bool allow_changed_config = false;
  bool force = false;           // with Resume::never: what an earlier run left in `out` is removed
  std::string version, commit;  // of the program, for checkpoints and metrics
  std::vector<std::string> command_line;
  // Called for samples; gets the model with its current weights and returns the text to show. Empty: no samples.
  std::function<std::string(const Model& model)> sample;
  // The text of ids, for dumps of batches. Empty: ids only.
  std::function<std::string(std::span<const int32_t> ids)> decode;
};

// Floating-point operations a second of this machine's matrix product in a dtype, from a few products of 768 x 768
// matrices (some 50 ms): what a run's rate is measured against.
double measure_matmul_rate(const ExecContext& ctx, ComputeDtype dtype);

// The configuration of a run on this data, with its warnings said. Error if no MODEL directory could hold the result.
TrainConfig check_config(const TrainConfig& config, const TokenSetInfo& data);

class Trainer {
 public:
  // `config` must be derived, and becomes that of the device; its numerics replace those of `ctx`. Allocates model and
  // optimizer and initialises the weights. Errors: those of check_run_data (loam/train/run_data.h).
  Trainer(const ExecContext& ctx, TrainConfig config, TrainingData data);
  // With one source; `val` may be null.
  Trainer(const ExecContext& ctx, TrainConfig config, std::shared_ptr<const TokenSet> train,
          std::shared_ptr<const TokenSet> val);
  ~Trainer();

  // The errors of load(), and what it would read from there on.
  static Mixture check_checkpoint(const VerifiedCheckpoint& checkpoint, const TrainConfig& config,
                                  const TrainingData& data, bool allow_changed_config, bool branches = false);

  static RunPlan plan(const ExecContext& ctx, const TrainConfig& config, int64_t train_tokens);

  // One optimizer step: the rows of `batch` samples from global sample b * batch on, in micro-batches, where b is
  // steps_done and the batches left out before it. The loss of each target weighs the same, whatever the cut. `stop` is
  // asked before each op of the forward and backward passes, where the host waits for the step.
  StepResult step(const StopFunction& stop = {});
  // The same in two halves, so that a GPU need not wait for the host between steps. launch() takes the step behind
  // those under way and, on a GPU that does not act on spikes, returns before it is done. next_result() gives the
  // steps' results in their order, each once, and brings steps_done(), describe_rows() and the counts of targets to
  // that step; nullopt: none is there. It waits for one if `wait` says so, or if kStepsAhead are under way, the most
  // there may be. An abandoned step's result is the last one: what was launched behind it has changed nothing, either.
  // A step that is done when launch() returns must be taken before the next launch, and all before model or state are
  // used otherwise.
  void launch(const StopFunction& stop = {});
  std::optional<StepResult> next_result(bool wait);
  static constexpr size_t kStepsAhead = 2;  // one runs, and the next one waits behind it
  // The first val_rows windows of a validation set, in order, whatever the packing. nullopt if there is no such set or
  // no target in them, or `stop` gave it up.
  std::optional<ValResult> validate(const StopFunction& stop = {}, size_t set = 0);
  const TrainingData& data() const;
  const Mixture& mixture() const;
  // All that the run has read, in the order in which they came; loam/train/run_mixture.h.
  const std::vector<RunSource>& sources() const;
  int64_t steps_done() const;
  int64_t steps_launched() const;  // and those under way
  // The first of the samples that step `step` (1, 2, ...) takes.
  int64_t first_sample(int64_t step) const;
  // {"train", "val", "tokenizer"}: what the data of a checkpoint must be.
  Json data_fingerprints() const;
  // The rows of the step whose result was given last, for people: [{"sample", "targets", "loss", "ids", "text"}, ...];
  // the text only with `decode`.
  Json describe_rows(const std::function<std::string(std::span<const int32_t>)>& decode) const;
  Model& model();
  const TrainConfig& config() const;

  // Writes and reads a complete state; load() continues bit for bit, and returns the `extra` of save(). Error if
  // shapes, configuration or data do not agree. Settings that only say what is logged, kept or shown (and `steps` under
  // a constant rate) may always change, others with allow_changed_config. Another number of threads is a warning.
  // With `branches` the checkpoint is another run's, and steps and the shape of the schedule may change too.
  // `kept` are steps of checkpoints that stay beside those of keep_last and keep_every.
  Path save(CheckpointStore& store, const Json& extra, const std::vector<int64_t>& kept = {});
  Json load(const VerifiedCheckpoint& checkpoint, bool allow_changed_config, bool branches = false);
  // The weights of a MODEL directory, whose configuration must be that of the run. Before the first step. Errors of
  // load_weights(), after which nothing has changed.
  void init_from(const Path& directory);
  // Goes back to an earlier checkpoint of this run and leaves out the batches from there up to `spike`'s, which is the
  // step that was just tried. Resuming from the checkpoint that is saved next takes the same batches.
  // The mixture stays as it is, also where the checkpoint is of another one.
  void rewind(const VerifiedCheckpoint& checkpoint, const StepResult& spike);
  // One object for each rewind that led here: {"step", "spike_step", "left_out": [begin, end], "reason", ...}.
  const Json& rewinds() const;
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
// `interrupted`; the same call goes on from there, bit for bit. Before the first step there is nothing to keep.
//
// If a loss is not finite, twenty steps in a row change nothing, or the last one does not because its gradient is not
// finite, `stopped` is recorded and the call ends in Error{kInvalidArgument}, which names the last good checkpoint: the
// state is saved only where the last loss and gradient were finite. So it is on every other Error.
struct RunSummary {
  int64_t steps = 0;
  // Of what this call did; none if it did no such thing.
  std::optional<double> final_loss, final_val_loss, tokens_per_second;
  std::vector<std::pair<std::string, ValResult>>
      validations;     // the last of each named set; final_val_loss: the first's
  double seconds = 0;  // of training in all, earlier lives of the run included
  bool interrupted = false;
  bool has_model = true;  // false: interrupted before the first step of a run that begins
  std::string id;         // of the run, kept when it goes on
  RunCost cost;           // of the run in all
};
// What a run starts with. Finding it makes every check of run_training that needs no memory for the model, and writes
// nothing; without `out` in the options none of what is there.
struct RunStart {
  TrainingData data;
  TrainConfig config;
  std::optional<VerifiedCheckpoint> checkpoint;
  bool branches = false;  // the checkpoint is another run's
};
RunStart check_run(const TrainConfig& config, const RunOptions& options);
RunSummary run_training(const ExecContext& ctx, const TrainConfig& config, const RunOptions& options);

}  // namespace loam
