// What a Trainer holds; shared by its source files.
#pragma once

#include <memory>

#include "loam/optim/optimizer.h"
#include "loam/train/optimizer_groups.h"
#include "loam/train/trainer.h"

namespace loam {

struct Trainer::State {
  ExecContext ctx;  // its step points to `step_state`
  TrainConfig config;
  std::shared_ptr<const TokenSet> train, val;
  Loader loader;
  Model model;
  StepState step_state;
  std::vector<OptimizerGroups::Place> places;  // by parameter
  std::unique_ptr<Optimizer> optimizer;
  int64_t steps_done = 0, updates = 0;  // updates: the steps that were not skipped
  TokenBatch batch;

  State(const ExecContext& context, TrainConfig c, std::shared_ptr<const TokenSet> train_set,
        std::shared_ptr<const TokenSet> val_set);

  // The f32 truth of a parameter, in its shape.
  Tensor master(int32_t index) const;
  // What the optimizer keeps for it, in its shape, under the names of optimizer.safetensors: "m.NAME".
  std::vector<std::pair<std::string, Tensor>> kept(int32_t index) const;
};

}  // namespace loam
