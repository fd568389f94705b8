// Scaled dot-product attention by tiles with the online softmax: Dao et al. 2022 (FlashAttention), Dao 2023
// (FlashAttention-2). No T x S matrix exists. Legend: B batch, T query positions, S key positions, H heads, K key/value
// heads (H a multiple of K: query head h reads key head h / (H/K)), D head dim.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

// Who sees whom. Query i of a row stands at key position p = i + n - T with n = key_count[b] (absent: S): queries are
// the last T of the row's positions. It sees key j if
//   j <= p (causal), and j > p - window (if there is a window), and j >= first_key[b, i] (its document's first key;
//   absent: 0), and j < key_count[b] (absent: S).
// A query that sees no key has output 0, lse = -inf, and zero gradients.
struct AttentionMask {
  bool causal = true;
  int64_t window = 0;  // keys up to p that are seen, p included; 0: all
  View first_key;      // [B,T], i32, non-decreasing along T; or absent
  View key_count;      // [B], i32; or absent
};

// How a score becomes the logit of the softmax: x = scale * q.k, then y = softcap * tanh(x / softcap) (Gemma 2), then
// y - slope[h] * (p - j) (ALiBi, Press et al. 2021).
struct AttentionLogits {
  float scale = 1;
  float softcap = 0;  // 0: y = x
  View slopes;        // [H], f32; or absent
};

// Training sets weights of the softmax to 0 at random and divides the others by 1 - probability; which ones is a
// function of the seed, the site (which layer), the row's sample, the head, and i and j (loam/kernels/dropout.h).
struct AttentionDropout {
  float probability = 0;
  uint64_t site = 0;
};

// out[b,i,h] = sum_j softmax_j(logit(b,i,j,h)) v[b,j,h'].
// q, k, v, out share one dtype, f32, bf16 or f16; scores, softmax and sums are f32; D a multiple of 8, at most 256. The
// last axis has stride 1, other strides are free.
struct AttentionFwdArgs {
  View q;  // [B,T,H,D]
  View k;  // [B,S,K,D]
  View v;  // [B,S,K,D]
  AttentionMask mask;
  AttentionLogits logits;
  AttentionDropout dropout;
  View out;        // [B,T,H,D]
  View lse;        // [B,H,T], f32: log of the sum of exp of the logits; or absent
  View max_logit;  // [B,H,T], f32: the largest logit of a query, -inf if it sees no key; or absent
};

// With P = exp(logit - lse), M the mask of dropout (0 or 1 / (1 - probability), without dropout 1), D_i = out_i .
// d_out_i: dv = (P * M)^T d_out,  dS = P * (M * d_out v^T - D) * (1 - tanh^2(x / softcap)),  dq = scale dS k,  dk =
// scale dS^T q. Deterministic. Each gradient is written (or added where its accumulate flag says so).
struct AttentionBwdArgs {
  View q, k, v, out, lse, d_out;
  AttentionMask mask;
  AttentionLogits logits;
  AttentionDropout dropout;
  View d_q, d_k, d_v;
  bool accumulate_q = false, accumulate_k = false, accumulate_v = false;
};

}  // namespace loam
