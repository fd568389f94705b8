#include "loam/infer/score.h"

#include <algorithm>
#include <cmath>

#include "loam/base/interrupt.h"
#include "loam/ops/linear_log_prob.h"

namespace loam {

std::vector<float> score_tokens(const ExecContext& ctx, const Model& model, std::span<const int32_t> ids,
                                int64_t window, int64_t stride, const std::function<void(int64_t)>& on_tokens) {
  const int64_t n = static_cast<int64_t>(ids.size());
  const int64_t context = model.config().context_length;
  if (window == 0) window = context;
  if (stride == 0) stride = std::max<int64_t>(1, window / 2);
  LOAM_CHECK(window >= 2 && window <= context, "score: a window of {} tokens, the model's context is {}", window,
             context);
  LOAM_CHECK(stride >= 1 && stride < window, "score: a stride of {} tokens with a window of {}", stride, window);
  for (int32_t id : ids)
    LOAM_CHECK(id >= 0 && id < model.config().vocab_size,
               "score: token id {} lies outside the model's vocabulary of {}", id, model.config().vocab_size);

  std::vector<float> logp(ids.size(), 0.0f);
  const Context eval(ctx);
  // The window's last `stride` targets are new, except that the first window scores all of its own.
  for (int64_t scored = 1; scored < n;) {
    check_interrupt();
    const int64_t end = std::min(n, scored == 1 ? window : scored + stride);
    const int64_t begin = std::max<int64_t>(0, end - window);
    const int64_t length = end - begin - 1;  // inputs; each predicts the token after it
    std::vector<int32_t> targets(ids.begin() + begin + 1, ids.begin() + end);
    std::fill(targets.begin(), targets.begin() + (scored - begin - 1), -1);
    std::vector<int32_t> positions(static_cast<size_t>(length));
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
    FullSequence sequence(Tensor::from<int32_t>(*ctx.arena, {1, length}, positions), {});
    const Var hidden = model.transformer->hidden(
        eval,
        Tensor::from<int32_t>(*ctx.arena, {1, length},
                              ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(length))),
        sequence);
    const auto scores = ops::linear_log_prob(eval, hidden, model.transformer->head(),
                                             Tensor::from<int32_t>(*ctx.arena, {length}, targets));
    const Tensor logp_of_window = scores.logp.value.to_host();
    const std::span<float> values = logp_of_window.span<float>();
    for (int64_t i = scored; i < end; ++i) {
      LOAM_CHECK(!std::isnan(values[static_cast<size_t>(i - begin - 1)]),
                 "score: the log-probability of token {} is NaN", i);
    }
    for (int64_t i = scored; i < end; ++i) logp[static_cast<size_t>(i)] = values[static_cast<size_t>(i - begin - 1)];
    if (on_tokens) on_tokens(end - scored);
    scored = end;
  }
  return logp;
}

}  // namespace loam
