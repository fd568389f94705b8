// Runs that do not begin with random weights: branches of another run's checkpoint, and models that are trained
// further.
#pragma once

#include <optional>
#include <string>

#include "loam/train/trainer.h"

namespace loam {

// {"branch" or "init_from": path, "id": of its contents, weights and all, "family": to write the model as}; null for a
// run that begins with random weights. It goes into every checkpoint of the run.
Json origin_of(const RunOptions& options);

// Where `branch` or `init_from` is the directory of a run it becomes what is meant: the checkpoint that the run in
// options.out began with, if it is to be continued, else the newest whole one; and the run's model. Error{kNotFound} if
// there is none.
void settle_origin(RunOptions& options);

// Whether the checkpoint, which lies in options.out, is of a run with the origin that the options name: of the same
// contents or, where that is gone, of the same path. One without branch and init_from goes on with any.
bool has_origin(const Path& checkpoint, const RunOptions& options);

// The newest whole checkpoint in options.out if it is of a run with this origin, and is to be continued.
std::optional<Path> newest_with_origin(const RunOptions& options);

// The configuration that a checkpoint was written with. Error{kBadFormat} that names it.
TrainConfig checkpoint_config(const Path& checkpoint);

// What the user's settings are laid over, in a run with an origin. A branch has the configuration of the checkpoint
// that it `goes_on` from, or of the one that it begins with, then with 0 for steps and optimizer.decay_steps. A model
// to train further is put into `config`.
TrainConfig origin_config(const RunOptions& options, TrainConfig config, const std::optional<Path>& goes_on);

// Fills in what is 0 of steps and optimizer.decay_steps, for a branch that begins at a checkpoint: it goes on for
// decay_steps, or to `steps`; under wsd the decay begins at the branch's step if one of the two is given, decay_steps
// before `steps` if both are. Error{kInvalidArgument} if it would not go on, decay before it begins, or begin with a
// higher rate than the run had there.
void settle_branch(const Path& checkpoint, TrainConfig& config);

}  // namespace loam
