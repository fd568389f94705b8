// What the two kernels of attention's backward share.
#pragma once

#include "loam/kernels/cuda/attention_layout.cuh"

namespace loam::cuda {

// d_k and d_v (attention_bwd_kv.cu), once `params.queries` is filled.
void attention_bwd_kv(const ExecContext& ctx, const AttentionParams& params, DType dtype, int64_t batch);

enum class Logits { plain, shifted, capped };  // scale times the score; with ALiBi; with a soft cap, perhaps also ALiBi

template <class L, bool kQueriesAreRows, Logits kLogits>
__device__ inline void masked_score_gradients(const AttentionParams& p, const Query* queries, int first_key,
                                              const uint32_t (&dropped)[L::kR], float (&s)[L::kR][L::kC],
                                              float (&d)[L::kR][L::kC]) {
#pragma unroll
  for (int j = 0; j < L::kC; ++j) {
#pragma unroll
    for (int i = 0; i < L::kR; ++i) {
      const Query& query = queries[kQueriesAreRows ? L::row(i) : L::col(j)];
      const int key = first_key + (kQueriesAreRows ? L::col(j) : L::row(i));
      float cap_slope = 1;
      float x;
      if constexpr (kLogits == Logits::plain) {
        x = fmaf(s[i][j], p.factor, -query.lse2);
      } else {
        x = logit<kLogits == Logits::capped, typename L::Element>(p, query, key, s[i][j], cap_slope) - query.lse2;
      }
      const float weight = exp2_fast(x);
      const bool seen = query.sees(key), drop = dropped[i] >> j & 1;
      const float gradient = weight * ((drop ? 0.0f : d[i][j] * p.kept) - query.dot) * cap_slope;
      d[i][j] = seen ? gradient : 0.0f;
      s[i][j] = seen && !drop ? weight : 0.0f;
    }
  }
}

// Scores s = q.k become weights, 0 where dropped; d = d_out.v becomes the gradient of scale * s. `partial`: some query
// does not see some key.
template <class L, bool kQueriesAreRows>
__device__ inline void score_gradients(const AttentionParams& p, const Query* queries, int first_key,
                                       const uint32_t (&dropped)[L::kR], bool partial, float (&s)[L::kR][L::kC],
                                       float (&d)[L::kR][L::kC]) {
  if (!p.plain) {
    return p.softcap > 0
               ? masked_score_gradients<L, kQueriesAreRows, Logits::capped>(p, queries, first_key, dropped, s, d)
               : masked_score_gradients<L, kQueriesAreRows, Logits::shifted>(p, queries, first_key, dropped, s, d);
  }
  if (partial || p.drops) {
    return masked_score_gradients<L, kQueriesAreRows, Logits::plain>(p, queries, first_key, dropped, s, d);
  }
#pragma unroll
  for (int j = 0; j < L::kC; ++j) {
#pragma unroll
    for (int i = 0; i < L::kR; ++i) {
      const Query& query = queries[kQueriesAreRows ? L::row(i) : L::col(j)];
      s[i][j] = exp2_fast(fmaf(s[i][j], p.factor, -query.lse2));
      d[i][j] = s[i][j] * (d[i][j] - query.dot);
    }
  }
}

}  // namespace loam::cuda
