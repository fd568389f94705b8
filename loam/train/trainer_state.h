// What a Trainer holds; shared by its source files.
#pragma once

#include <deque>
#include <memory>

#include "loam/optim/optimizer.h"
#include "loam/train/optimizer_groups.h"
#include "loam/train/run_mixture.h"
#include "loam/train/spikes.h"
#include "loam/train/trainer.h"

namespace loam {

// Numbers of one step in the device's memory, and what the host knows of them.
struct StepMemory {
  Tensor tokens, targets, positions, first_key;  // [batch, T] i32; first_key absent if documents see each other
  Tensor losses;                                 // [batch, T] f32
  Tensor state;                                  // StepState, on a GPU; on the CPU that is Trainer::State::step_state
  Tensor sums;                                   // two f64: squares of the gradients, and of the losses

  StepMemory(const ExecContext& ctx, const TrainConfig& config);
  static int64_t bytes_of_row(const TrainConfig& config) {
    return config.data.length * (4 + config.data.mask_documents) * 4;
  }
  double* sum(int which) const { return static_cast<double*>(sums.view().data) + which; }
};

// A step that was launched.
struct LaunchedStep {
  StepResult result;  // what the host knows beforehand; the rest once `losses` and `state` are there
  TokenBatch batch;
  int64_t first_sample = 0;                 // of the batch
  std::vector<double> row_losses;           // of the batch: sums over each row's targets
  std::unique_ptr<Download> losses, state;  // on their way; null: the step is done
};

// torch.amp.GradScaler's.
inline constexpr float kFirstLossScale = 65536;
inline constexpr int64_t kGrowthInterval = 2000;  // steps

struct Trainer::State {
  ExecContext ctx;  // its step points to the StepState in the device's memory
  TrainConfig config;
  TrainingData data;
  std::optional<RunMixture> sources;  // none without data
  std::optional<Mixture> mixture;     // as `sources` says
  Model model;
  StepState step_state;  // on a GPU a copy, as it is after the last step whose result is known
  std::optional<StepMemory> memory;
  std::unique_ptr<Recording> recording;        // of a GPU's step
  bool warm = false;                           // it has run once
  std::vector<OptimizerGroups::Place> places;  // by parameter
  std::unique_ptr<Optimizer> optimizer;
  int64_t steps_done = 0;
  std::deque<LaunchedStep> launched;  // those whose results were not given yet
  LaunchedStep last;                  // the one whose result was given last
  BatchOrder order;
  SpikeDetector spikes;
  Json rewinds = Json::array();  // what the run says of each

  // Without data the weights are not initialised: for run_step() with kernels that do nothing.
  State(const ExecContext& context, TrainConfig c, TrainingData sets);

  bool scales_loss() const { return config.dtype == ComputeDtype::fp16; }
  void set_sources(RunMixture run_sources);

  // The step on its batch, whose targets its result counts: to the end, or on a GPU, where nothing has to be decided on
  // the way, launched.
  void run_step(LaunchedStep& step, const StopFunction& stop);
  // Its parts. Gradients, losses and sums of memory; false if `stop` gave it up. `details` may be null.
  bool make_gradients(const StopFunction& stop, StepDetails* details);
  void send(const LaunchedStep& step);                           // its batch and inputs to the device
  void launch(LaunchedStep& step, StepDetails* details);         // all of it, and the downloads
  void update(StepDetails* details);                             // the optimizer's work
  void fetch_state();                                            // step_state from the device
  void read(LaunchedStep& step, std::span<const float> losses);  // these and step_state into row_losses and result
  bool judge(StepResult& result);   // whether the optimizer shall run; may set step_state.skip
  void finish(StepResult& result);  // what the host keeps of a step that was not abandoned
  void add_targets();               // of `last`, for their sources
  // The f32 truth of a parameter, in its shape.
  Tensor master(int32_t index) const;
  // What the optimizer keeps for it, in its shape, under the names of optimizer.safetensors: "m.NAME".
  std::vector<std::pair<std::string, Tensor>> kept(int32_t index) const;
};

}  // namespace loam
