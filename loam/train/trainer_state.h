// What a Trainer holds; shared by its source files.
#pragma once

#include <memory>

#include "loam/optim/optimizer.h"
#include "loam/train/optimizer_groups.h"
#include "loam/train/run_mixture.h"
#include "loam/train/spikes.h"
#include "loam/train/trainer.h"

namespace loam {

struct Trainer::State {
  ExecContext ctx;  // its step points to `step_state`
  TrainConfig config;
  TrainingData data;
  std::optional<RunMixture> sources;  // none without data
  std::optional<Mixture> mixture;     // as `sources` says
  Model model;
  StepState step_state;
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
  // Counts those of `batch` for its sources.
  void add_targets();
  // The f32 truth of a parameter, in its shape.
  Tensor master(int32_t index) const;
  // What the optimizer keeps for it, in its shape, under the names of optimizer.safetensors: "m.NAME".
  std::vector<std::pair<std::string, Tensor>> kept(int32_t index) const;
};

}  // namespace loam
