// What a Trainer holds; shared by its source files.
#pragma once

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

struct Trainer::State {
  ExecContext ctx;  // its step points to the StepState in the device's memory
  TrainConfig config;
  TrainingData data;
  std::optional<RunMixture> sources;  // none without data
  std::optional<Mixture> mixture;     // as `sources` says
  Model model;
  StepState step_state;
  std::optional<StepMemory> memory;
  std::unique_ptr<Recording> recording;        // of a GPU's step
  bool warm = false;                           // it has run once
  std::vector<OptimizerGroups::Place> places;  // by parameter
  std::unique_ptr<Optimizer> optimizer;
  int64_t steps_done = 0, updates = 0;  // updates: the steps that were not skipped
  BatchOrder order;
  SpikeDetector spikes;
  Json rewinds = Json::array();  // what the run says of each
  TokenBatch batch;
  int64_t first_sample = 0;        // of the batch
  std::vector<double> row_losses;  // of the batch: sums over each row's targets

  // Without data the weights are not initialised: for run_step() with kernels that do nothing.
  State(const ExecContext& context, TrainConfig c, TrainingData sets);

  void set_sources(RunMixture run_sources);

  // The step on `batch`, whose targets `result` counts.
  void run_step(StepResult& result, const StopFunction& stop);
  // Its parts. Gradients, losses and sums of memory; false if `stop` gave it up. `details` may be null.
  bool make_gradients(const StopFunction& stop, StepDetails* details);
  void send(const StepResult& result);    // batch and step_state to the device
  void read(StepResult& result);          // losses and norm from the device, into row_losses and result
  bool judge(StepResult& result);         // whether the optimizer shall run; may set step_state.skip
  void run_recorded(StepResult& result);  // on a GPU, where nothing has to be decided on the way
  // Counts those of `batch` for its sources.
  void add_targets();
  // The f32 truth of a parameter, in its shape.
  Tensor master(int32_t index) const;
  // What the optimizer keeps for it, in its shape, under the names of optimizer.safetensors: "m.NAME".
  std::vector<std::pair<std::string, Tensor>> kept(int32_t index) const;
};

}  // namespace loam
