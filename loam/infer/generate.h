// Generation: prompts in, tokens out. Knows no text.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "loam/infer/kv_cache.h"
#include "loam/infer/sampler.h"
#include "loam/model/model_files.h"

namespace loam {

struct GenerateRequest {
  std::vector<int32_t> prompt;  // at least one id
  int64_t max_tokens = 128;
  SamplingOptions sampling;
  uint64_t stream = 0;         // random numbers: requests with equal seed and different streams are independent
  std::vector<bool> drawable;  // by id; those beyond its end are never drawn (a vocabulary is padded); empty: all are
  std::vector<int32_t> stop_ids;  // the text ends before these
};

enum class FinishReason {
  stop,       // a stop id came, or the callback said so
  length,     // max_tokens or the model's context is used up
  cancelled,  // interrupted
};
const char* finish_reason_name(FinishReason reason);

struct GenerateResult {
  std::vector<int32_t> tokens;  // without the stop id
  std::vector<float> logp;  // of each, under the model's own distribution, over all ids, as score_tokens() gives them
  FinishReason reason = FinishReason::length;
};

struct GenerateStats {
  int64_t prompt_tokens = 0, new_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;
};

// Called for each new token of request `request`, in order; false ends that request ("stop"; the token counts).
using TokenCallback = std::function<bool(size_t request, int32_t token, float logp)>;

struct GenerateOptions {
  int64_t batch = 16;     // sequences that decode together
  bool use_cache = true;  // false: the whole sequence is computed again for every token, the reference of tests
};

// Runs all requests; a finished one makes room for the next. Errors, before anything is computed: an empty prompt, an
// id outside the vocabulary, or a prompt that leaves no room for a new token within the context (both numbers are
// named). A logit that is NaN is an error while it runs.
std::vector<GenerateResult> generate(const ExecContext& ctx, const Model& model,
                                     const std::vector<GenerateRequest>& requests, const GenerateOptions& options,
                                     const TokenCallback& on_token = {}, GenerateStats* stats = nullptr);

}  // namespace loam
