// The language-model head and its losses, without ever storing the logits.
// Legend: N tokens, C width, V vocabulary.
#pragma once

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam::ops {

// What makes logits of hidden states: l = scale * (hidden W^T) + bias, then softcap * tanh(l / softcap).
struct LanguageHead {
  ParamRef weight;    // [V,C]
  ParamRef bias;      // [V] f32, or absent
  float scale = 1;    // of the product, not of the bias
  float softcap = 0;  // 0: none

  LanguageHead(ParamRef w) : weight(w) {}  // NOLINT(google-explicit-constructor): mostly a head is its matrix
};

// The logits in f32 whatever the weight's dtype; records nothing. hidden [..., C] -> [..., V].
Tensor logits(const Context& ctx, const Tensor& hidden, const LanguageHead& head);

struct LogProb {
  Var logp;        // [N] f32, log-probability of each target; 0 where the target is -1
  Var lse;         // [N] f32, log-sum-exp of the logits (for z-loss)
  Tensor entropy;  // [N] f32, in nats; carries no gradient; empty unless asked for
};

// By chunks of the vocabulary, with running statistics; backward computes the chunks again. hidden [..., C] (N rows),
// targets i32 with N elements in [-1, V).
LogProb linear_log_prob(const Context& ctx, const Var& hidden, const LanguageHead& head, const Tensor& targets,
                        bool want_entropy = false);

struct CrossEntropy {
  Var loss;       // one f32 value: scale * sum over rows with a target of (-log p(target) + z_loss * lse^2); where ctx
                  // has a step, its gradient is times step->loss_factor and loss_scale
  Tensor losses;  // [N] f32, -log p(target), unscaled, 0 where the target is -1
};

// The fast path: loss and gradient in one pass over chunks of rows. `scale` (or the
// step's loss_factor) is 1 / (number of targets of the whole optimizer step), so that accumulated micro-batches give
// exactly the one-shot gradient. REQUIRES: the loss reaches the
// root of backward() with factor 1 (it may be added to other losses): when ctx records, the weight's gradient is
// accumulated here, in forward.
CrossEntropy cross_entropy(const Context& ctx, const Var& hidden, const LanguageHead& head, const Tensor& targets,
                           float scale, float z_loss = 0);

}  // namespace loam::ops
