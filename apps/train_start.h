// The configuration that `loam train` starts with.
#pragma once

#include <string>
#include <vector>

#include "apps/command.h"
#include "loam/train/trainer.h"

namespace loam {

// The recipe with the settings over it. With options.branch the checkpoint's configuration takes the recipe's place;
// with options.init_from the MODEL directory's that of its model. UsageError for what the user typed and cannot be
// meant, such as settings that contradict the MODEL.
TrainConfig read_start_config(const std::string& recipe, const std::vector<TypedSetting>& settings,
                              const RunOptions& options);

// Warns if the model in a MODEL directory learned the ids of another tokenizer than that of the data, as far as that is
// known.
void warn_of_other_tokenizer(const Path& model, const Path& data);

}  // namespace loam
