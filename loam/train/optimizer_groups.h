// Which settings of the optimizer a parameter is trained with, and the runs of parameters that share them.
#pragma once

#include <string>
#include <vector>

#include "loam/config/train_config.h"
#include "loam/nn/param_store.h"
#include "loam/optim/optimizer.h"

namespace loam {

// What `match` of OptimizerGroupConfig calls a parameter: "embedding"; "head" for matrices outside of the layers,
// "matrix" for those within; "vector".
const char* param_class(const ParamSpec& spec);

struct ParamSettings {
  double lr_scale, weight_decay;
  bool orthogonal;  // Muon's: matrices of the layers
  RuleSettings rule;
  bool operator==(const ParamSettings&) const = default;
};
// By parameter of the store. Error{kInvalidArgument} for an entry of `groups` that matches none.
std::vector<ParamSettings> param_settings(const ParamStore& store, const OptimizerConfig& config);

// The same error before there is a model, and Error{kInvalidArgument} that names the entry and its setting for one that
// none of its parameters has a use for: an entry behind which others match all that it does, a kind muon without a
// matrix of a layer, betas or eps without a rule that has them. `config` is derived: what derive() fills in is no
// setting.
void check_optimizer_groups(const TrainConfig& config);

// Says of a parameter that `before` and `config` train by different kinds, whose state does not go over; "" if there is
// none. Both are for the model of `config`.
std::string other_kind(const OptimizerConfig& before, const TrainConfig& config);

// Runs of neighbours in the groups of an allocated store.
struct OptimizerGroups {
  struct Place {
    int32_t group = -1;  // -1: it is not trained
    int64_t begin = 0;   // in the group
  };
  std::vector<OptimGroup> groups;
  std::vector<Place> places;  // by parameter
};
OptimizerGroups optimizer_groups(ParamStore& store, const OptimizerConfig& config);

}  // namespace loam
