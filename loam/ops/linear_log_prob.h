// The language-model head and its losses, without ever storing the logits.
// Legend: N tokens, C width, V vocabulary.
#pragma once

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam::ops {

struct LogProb {
  Var logp;        // [N] f32, log-probability of each target; 0 where the target is -1
  Var lse;         // [N] f32, log-sum-exp of the logits (for z-loss)
  Tensor entropy;  // [N] f32, in nats; carries no gradient; empty unless asked for
};

// logits = hidden W^T, by chunks of the vocabulary, with running statistics; backward computes the chunks again. hidden
// [..., C] (N rows), weight [V,C], targets i32 with N elements in [-1, V).
LogProb linear_log_prob(const Context& ctx, const Var& hidden, const ParamRef& weight, const Tensor& targets,
                        bool want_entropy = false);

struct CrossEntropy {
  Var loss;       // one f32 value: scale * sum over rows of -log p(target)
  Tensor losses;  // [N] f32, unscaled, 0 where the target is -1
};

// The fast path: loss and gradient in one pass over chunks of rows. `scale` is 1 / (number of targets of the whole
// optimizer step), so that accumulated micro-batches give exactly the one-shot gradient. REQUIRES: the loss reaches the
// root of backward() with factor 1 (it may be added to other losses): when ctx records, the weight's gradient is
// accumulated here, in forward.
CrossEntropy cross_entropy(const Context& ctx, const Var& hidden, const ParamRef& weight, const Tensor& targets,
                           float scale);

}  // namespace loam::ops
