// Row kernels of the softmax over the vocabulary. Legend: N rows (tokens), V columns of the chunk of logits at hand,
// which starts at vocabulary index `begin`. Logits are f32, bf16 or f16; statistics are f32. A target of -1 means: no
// loss, no gradient at this row.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

// l <- cap * tanh(l / cap), in place (Gemma 2).
struct SoftcapArgs {
  View logits;  // [N,V]
  float cap = 1;
};

// Takes one chunk of logits into running statistics of each row. With m the maximum so far, and sums over the columns
// so far:
//   max = m,  sum = sum exp(l - m),  dot = sum exp(l - m) * (l - m),  and target_logit[n] = l[n, target - begin] if the
//   target lies in the chunk.
// Then lse = m + log(sum), log-prob = target_logit - lse, entropy = log(sum) - dot / sum. Exact for any chunking up to
// rounding; stable for any finite logits. `first` starts the statistics instead of continuing them. A logit of -inf (a
// padded vocabulary entry) has probability 0.
struct LogitStatsArgs {
  View logits;  // [N,V]
  int64_t begin = 0;
  View targets;  // [N], i32
  bool first = true;
  View max, sum, target_logit;  // [N], f32
  View dot;                     // [N], f32, or absent when no entropy is wanted
};

// From the finished statistics of each row: lse = max + log(sum), logp = target_logit - lse (0 where the target is -1),
// entropy = log(sum) - dot / sum.
struct LogProbArgs {
  View max, sum, target_logit;  // [N], f32
  View dot;                     // [N], f32, or absent
  View targets;                 // [N], i32
  View logp, lse;               // [N], f32
  View entropy;                 // [N], f32, or absent with dot
};

// Turns a chunk of logits into its gradient, in place:  l[n,c] <- d_logp[n] * (onehot(target)[c] - p) + d_lse[n] * p,
// p = exp(l - lse[n]); a row whose target is -1 takes d_logp as 0. Where the logits were capped, times 1 - (l /
// softcap)^2: the gradient of what was capped.
struct LogitBwdArgs {
  View logits;  // [N,V], overwritten
  int64_t begin = 0;
  View targets;  // [N], i32
  View lse;      // [N], f32
  View d_logp;   // [N], f32
  View d_lse;    // [N], f32, or absent
  float softcap = 0;
};

// The fast path when whole rows of logits are at hand:  loss[n] = lse - l[target] and z_term[n] = z_loss * lse^2 (both
// 0 where the target is -1), and the logits become the gradient of scale * (loss + z_term) in place when
// `write_gradient`: scale * (p - onehot + 2 z_loss lse p), through the cap as in LogitBwdArgs (rows without target
// become 0). z-loss: de Brebisson and Vincent 2016; PaLM.
struct CrossEntropyRowsArgs {
  View logits;      // [N,V]
  View targets;     // [N], i32
  float scale = 1;  // times ctx.step->loss_factor in a step
  bool write_gradient = false;
  float z_loss = 0, softcap = 0;
  View loss;    // [N], f32
  View z_term;  // [N], f32, or absent
};

}  // namespace loam
