// Merges that follow from the order of tokens, as tiktoken merges.
#pragma once

#include <string>
#include <vector>

#include "loam/text/tokenizer_model.h"

namespace loam {

inline constexpr size_t kMaxRankedBytes = 1024;  // of a token: merging its bytes takes quadratic time

// REQUIRES: no token is longer. Of tokens by rank, "" where there is none: appends, by rank, the merge that makes each
// token (the last pair left when its bytes are merged by lower ranks) to model.merges and model.merge_ids.
// Error{kBadFormat} for a token that is there twice.
void derive_merges(const std::vector<std::string>& tokens, BpeModel& model);

}  // namespace loam
