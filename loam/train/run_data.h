// The data of a run: from the settings to what is read.
#pragma once

#include <string>
#include <vector>

#include "loam/config/train_config.h"
#include "loam/data/mixture.h"

namespace loam {

inline constexpr const char* kOnlySource = "train";  // the name of training data that need none
inline constexpr const char* kOnlySet = "val";       // of validation data

// Of one source that needs no name; `val` may be null.
TrainingData one_source(std::shared_ptr<const TokenSet> train, std::shared_ptr<const TokenSet> val);

// Opens and checks the token sets of data.path or data.sources, and those for validation: data.validation, else the
// val/ of each source, under its name (of data.path: "val"). Error if something is missing or damaged, or if two were
// made by different tokenizers; it names both.
TrainingData open_run_data(const DataConfig& config);

LoaderOptions loader_options(const TrainConfig& config);
// Stages begin at whole steps.
std::vector<MixtureStage> mixture_stages(const TrainConfig& config);
// The order of a run's samples.
Mixture make_mixture(const TrainConfig& config, const TrainingData& data, const MixtureStart& start = {});

// Error{kInvalidArgument} if the data have ids that the model's vocabulary lacks, or are shorter than a row.
void check_run_data(const TrainConfig& config, const TrainingData& data);

// {"train", "val", "tokenizer"}: fingerprints by name, of one unnamed set just that, null for none.
Json fingerprints_of(const TrainingData& data);

// How often the run reads each source.
std::vector<double> epochs_of(const TrainConfig& config, const Mixture& mixture);

// The share of the run's tokens that fills up rows.
double padding_share(const TrainConfig& config, const Mixture& mixture);

// What the settings make of the data and probably nobody wants, one line each: rows with much padding, sources with the
// same data, and a source that is read more than four times, beyond which repeated data are worth ever less
// (Muennighoff et al. 2023, "Scaling Data-Constrained Language Models").
std::vector<std::string> data_warnings(const TrainConfig& config, const Mixture& mixture);

}  // namespace loam
