// From logits to a token. Legend: V vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace loam {

struct SamplingOptions {
  double temperature = 1;  // 0: the most likely token (the lowest id of equals)
  int64_t top_k = 0;       // keep the k most likely; 0: all
  double top_p = 1;  // then the smallest set of most likely tokens whose share of what is left is at least p (Holtzman
                     // et al. 2020)
  double min_p = 0;  // then those with at least this share of the most likely one's probability
  uint64_t seed = 0;
};

// Error{kInvalidArgument} that names the field for NaN, a negative value, or one out of range.
void check_sampling_options(const SamplingOptions& options);

struct Sampled {
  int32_t token;
  float logp;  // under the model's own distribution: temperature 1, nothing cut off, ids that are never drawn included
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);
  // `index` is the number of the draw: the random number is a pure function of (seed, stream, index), so a sequence's
  // text does not depend on what is sampled beside it. Logits of -inf are never drawn, nor are ids that
  // `drawable` denies or that lie beyond its end; an empty one allows all. Error{kInvalidArgument} if a
  // logit is NaN or +inf, or none is finite.
  Sampled sample(std::span<const float> logits, uint64_t stream, uint64_t index,
                 const std::vector<bool>& drawable = {});  // logits [V]

 private:
  SamplingOptions options_;
  std::vector<std::pair<float, int32_t>> candidates_;
};

}  // namespace loam
