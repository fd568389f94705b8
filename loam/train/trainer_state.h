// What a Trainer holds; shared by its source files.
#pragma once

#include <memory>

#include "loam/optim/optimizer.h"
#include "loam/train/trainer.h"

namespace loam {

struct Trainer::State {
  ExecContext ctx;  // its step points to `step_state`
  TrainConfig config;
  std::shared_ptr<const TokenSet> train, val;
  Loader loader;
  Model model;
  StepState step_state;
  std::vector<int32_t> optimizer_group;  // by group of the ParamStore; -1: frozen
  std::unique_ptr<Adamw> optimizer;
  int64_t steps_done = 0, updates = 0;  // updates: the steps that were not skipped
  TokenBatch batch;

  State(const ExecContext& context, TrainConfig c, std::shared_ptr<const TokenSet> train_set,
        std::shared_ptr<const TokenSet> val_set);

  // The f32 truth of a parameter, and its moments (empty if it is frozen), in its shape.
  Tensor master(int32_t index) const;
  Tensor moment1(int32_t index) const;
  Tensor moment2(int32_t index) const;
};

}  // namespace loam
