// The rules by which optimizers change parameters: what each keeps from step to step, and the kernels that it calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loam/config/train_config.h"
#include "loam/kernels/exec_context.h"
#include "loam/tensor/tensor.h"

namespace loam {

// A matrix in a run of parameters: elements [begin, begin + rows * cols).
struct OptimMatrix {
  int64_t begin, rows, cols;
};

// One contiguous run of parameters with equal settings. All tensors are [n].
struct OptimGroup {
  std::string name;  // for messages: "group.0"
  Tensor weight;     // of a float dtype: what the model computes with
  Tensor gradient;   // f32
  double weight_decay = 0;
  double lr_scale = 1;
  std::vector<OptimMatrix> matrices = {};  // what Muon makes orthogonal, each on its own; empty: AdamW's under Muon
  std::optional<RuleSettings> rule = {};   // not set: the optimizer's
};

// One group in one step.
struct RuleInput {
  const OptimizerConfig& config;
  const OptimGroup& group;          // with a rule
  const Tensor& master;             // [n] f32
  const std::vector<Tensor>& kept;  // [n] f32 each, by UpdateRule::state
};

struct UpdateRule {
  std::vector<std::string> state;  // names of what it keeps; all begin as 0
  void (*apply)(const ExecContext& ctx, const RuleInput& input);
};

// The rule for a group, which has its settings: that of their kind; under Muon AdamW for a group without matrices.
//   adamw, adam  m and v             sgd      momentum, if there is some     adagrad  sum
//   lion         m                   rmsprop  v, and momentum if there is some
//   muon         momentum
// The kernels (loam/kernels/optimizer.h) have the formulas.
UpdateRule rule_for(const OptimizerConfig& config, const OptimGroup& group);

}  // namespace loam
