// The memory of a step beyond weights, gradients and moments, from the sequence of ops of the model.
// Legend: N tokens of a micro-batch, C width, H heads, K key/value heads, D head dim, F feed-forward width, L layers, V
// vocabulary.
#include <algorithm>

#include "loam/ops/head.h"
#include "loam/train/trainer.h"

namespace loam {
namespace {

int64_t norm_statistics(const ModelConfig& m) { return m.norm == NormKind::layer ? 2 : 1; }  // f32 a row

// What the nodes of one block keep a token: activations in the compute dtype, statistics in f32.
struct PerToken {
  int64_t activations = 0, statistics = 0;
};
PerToken kept_by_block(const ModelConfig& m) {
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  const int64_t up = m.gated ? 2 * m.ffn_dim : m.ffn_dim;
  PerToken kept;
  kept.activations += 2 * m.dim;                                       // the residual stream at both norms
  kept.activations += 2 * m.dim;                                       // what the norms give
  kept.activations += q + 2 * kv;                                      // fused q, k, v: v lives in it
  kept.activations += m.positions == PositionKind::rope ? q + kv : 0;  // rotated q and k
  kept.activations += q;                                               // attention's result
  kept.activations += up + m.ffn_dim;                                  // before and after the activation
  kept.statistics = 2 * norm_statistics(m) + m.heads;                  // norms, log-sum-exp of attention
  return kept;
}

}  // namespace

int64_t Trainer::activation_bytes(const TrainConfig& config) {
  const ModelConfig& m = config.model;
  const int64_t element = config.dtype == ComputeDtype::bf16 ? 2 : 4, f32 = 4;
  const int64_t N = config.micro_batch * config.data.length;

  const PerToken block = kept_by_block(m);
  const int64_t kept = m.layers * (block.activations * element + block.statistics * f32) + m.dim * element +
                       norm_statistics(m) * f32;                     // a token
  const int64_t batch = (config.data.mask_documents ? 4 : 3) * f32;  // a token: itself, target, position, first key

  // The peak is either in the loss (hidden states, their gradient, a chunk of logits and, for a narrow model, its
  // copy), or in the backward pass of the last block, where the gradient of its widest activation comes before the
  // activation goes.
  const int64_t logits = ops::logits_rows(N, m.vocab_size) * m.vocab_size * (element == f32 ? f32 : f32 + element);
  const double loss =
      static_cast<double>(N) * static_cast<double>(2 * m.dim * element + 2 * f32) + static_cast<double>(logits);
  const double backward =
      static_cast<double>(N) * static_cast<double>(element * std::max(m.gated ? 2 * m.ffn_dim : m.ffn_dim, 2 * m.dim));
  // Sizes that no machine has must not overflow.
  const double total = static_cast<double>(N) * static_cast<double>(kept + batch) + std::max(loss, backward);
  return static_cast<int64_t>(std::min(total, 0x1p60));
}

}  // namespace loam
