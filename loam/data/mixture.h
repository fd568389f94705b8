// Several sources in one order of samples, by weights that may change from stage to stage. As of one loader
// (loam/data/loader.h), the order is a pure function of the sample's number: nothing is remembered between batches.
// Where weights or sources change otherwise, another mixture begins with what each source has given so far.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loam/data/loader.h"

namespace loam {

struct NamedSet {
  std::string name;
  std::shared_ptr<const TokenSet> set;
};

// What a run reads.
struct TrainingData {
  std::vector<NamedSet> train, val;
};

// The order in which sources take turns so that after n turns, for every n, a source of weight w (the weights add up to
// 1) has had more than n w - 1 and fewer than n w + 1. That is the chairman assignment problem (Tijdeman 1980). It is
// solved for one period P: turn j = 1, 2, ... of a source may be taken from turn floor((j - 1) / w) to ceil(j / w) - 1
// of all, and of the sources that may have the next turn it is given to the one whose time ends first, which misses no
// time (Baruah, Cohen, Plaxton and Varvel 1996, "Proportionate progress"). After P turns all have had what is theirs,
// and the order repeats.
//
// P is at most 2^20: weights that are decimals with at most six places, or fractions of a common denominator up to
// that, are exact; others become the nearest multiples of 2^-20, and no weight but 0 less than that.
class Interleaving {
 public:
  // Error{kInvalidArgument} unless the weights are finite, none is negative and one is positive.
  explicit Interleaving(const std::vector<double>& weights);

  int64_t period() const { return static_cast<int64_t>(source_.size()); }
  struct Turn {
    int64_t source, index;  // the source's turn number `index`, from 0
  };
  Turn turn(int64_t position) const;                 // O(1)
  std::vector<int64_t> counts(int64_t turns) const;  // of every source among the first `turns`; O(P)

 private:
  std::vector<int64_t> share_;    // of the period, by source
  std::vector<uint16_t> source_;  // by turn of the period
  std::vector<uint32_t> index_;   // of that turn among those of its source
};

struct MixtureStage {
  int64_t begin = 0;            // the stage's first sample; ascending, the first 0
  std::vector<double> weights;  // one a source
  bool operator==(const MixtureStage&) const = default;
};

// Where a mixture begins, if it takes over from another one.
struct MixtureStart {
  int64_t first_sample = 0;
  std::vector<int64_t> taken;  // samples that every source has given before; empty: none
  std::vector<int64_t> keys;   // key k is the seed + k times a constant; empty: 0, 1, ...
  bool operator==(const MixtureStart&) const = default;
};

// Which source gives which sample. A stage that begins before the first sample begins there.
class MixtureOrder {
 public:
  MixtureOrder(const std::vector<MixtureStage>& stages, const MixtureStart& start);

  struct Place {
    int64_t source, index;  // sample `index` of that source's loader
  };
  // REQUIRES: not before the first sample.
  Place place(int64_t sample) const;  // O(log stages)
  // Of every source, among the first `samples` of the run. REQUIRES: not fewer than lie before the first sample.
  std::vector<int64_t> counts(int64_t samples) const;
  int64_t first_sample() const { return first_sample_; }

 private:
  struct Stage {
    int64_t begin;
    Interleaving order;
    std::vector<int64_t> earlier;  // samples of every source in the stages before
  };
  const Stage& stage_of(int64_t sample) const;

  int64_t first_sample_;
  std::vector<Stage> stages_;
};

// Each source goes on in its own permuted epochs through all stages, and begins anew as often as it takes. The order
// of the first source is keyed by the seed, as that of a Loader is; those of others by keys of their own.
class Mixture {
 public:
  using Place = MixtureOrder::Place;
  Mixture(const std::vector<NamedSet>& sources, const std::vector<MixtureStage>& stages, LoaderOptions options,
          const MixtureStart& start = {});
  // As a new one of the same sources.
  void begin(const std::vector<MixtureStage>& stages, const MixtureStart& start);

  Place place(int64_t sample) const { return order_->place(sample); }
  // Row r of the result is global sample `first_sample + r`.
  void fill(int64_t first_sample, int64_t rows, TokenBatch& batch) const;
  std::vector<int64_t> counts(int64_t samples) const { return order_->counts(samples); }
  int64_t first_sample() const { return order_->first_sample(); }

  int64_t size() const { return static_cast<int64_t>(loaders_.size()); }
  const std::string& name(int64_t source) const { return names_[static_cast<size_t>(source)]; }
  const Loader& loader(int64_t source) const { return loaders_[static_cast<size_t>(source)]; }

 private:
  LoaderOptions options_;
  std::vector<std::string> names_;
  std::vector<Loader> loaders_;
  std::optional<MixtureOrder> order_;
};

}  // namespace loam
