// The sources of a run, and where each stands, also while it is not read: what a run remembers of its mixture, so that
// weights, stages and sources may change between two of its lives.
#pragma once

#include <string>
#include <vector>

#include "loam/base/json.h"
#include "loam/train/run_data.h"
#include "loam/train/spikes.h"

namespace loam {

struct RunSource {
  std::string name, fingerprint;
  int64_t taken = 0;    // samples that it gave before the first one of the mixture that is read, left-out ones too
  int64_t targets = 0;  // that it gave to steps which changed the weights
  bool operator==(const RunSource&) const = default;
};

class RunMixture {
 public:
  // Of a run that begins: keys go by the order of the sources.
  explicit RunMixture(const TrainingData& data);
  // As a checkpoint tells it. Error{kBadFormat} for what is none, or not after `samples`.
  RunMixture(const Json& json, int64_t samples);
  // Of a checkpoint that is older than the format: of a mixture that has held from the first sample on, where every
  // target of a row counts. `data` are its fingerprints.
  RunMixture(const TrainConfig& config, const Json& data, const BatchOrder& order, int64_t samples);
  Json to_json() const;

  // "" or the name of a source which has the name of another of this run.
  std::string other_source(const TrainingData& data) const;
  // Goes on with other settings after `samples`: if the sources or the stages differ from those `before`, a mixture
  // begins there, with every source where it stood. A set under a new name, if its old one is gone, is the same source.
  // Error{kBadFormat} if it lacks a source of `before`. REQUIRES: no other_source(data).
  void go_on(const TrainConfig& before, int64_t samples, const TrainConfig& config, const TrainingData& data);
  // Keeps the mixture, but takes the targets of an earlier state of the run.
  void take_targets(const RunMixture& earlier);

  // Of what is read. The one batch of overfit_one_batch is the first, whatever was read before.
  MixtureStart start(const TrainConfig& config, const TrainingData& data) const;
  const std::vector<RunSource>& sources() const { return sources_; }  // by key
  void add_targets(const std::string& name, int64_t targets);

 private:
  int64_t key_of(const std::string& name) const;  // -1: none
  MixtureStart start_of(const std::vector<int64_t>& keys) const;

  int64_t first_sample_ = 0;
  std::vector<RunSource> sources_;
};

}  // namespace loam
