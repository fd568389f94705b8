// Log-probabilities of given tokens, over all ids of the model's vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "loam/kernels/exec_context.h"
#include "loam/model/model_files.h"

namespace loam {

// logp[i] = log p(ids[i] | up to `window` - 1 tokens before it), for i = 1 .. n-1; logp[0] is 0: nothing stands before
// it. Texts longer than the window are scored in windows that overlap by `window` - `stride` tokens; every token is
// scored exactly once, with as much context as its window gives. window 0: the model's context; stride 0: half the
// window. `on_tokens` hears of progress.
std::vector<float> score_tokens(const ExecContext& ctx, const Model& model, std::span<const int32_t> ids,
                                int64_t window = 0, int64_t stride = 0,
                                const std::function<void(int64_t)>& on_tokens = {});

}  // namespace loam
