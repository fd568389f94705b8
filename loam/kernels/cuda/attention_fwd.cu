// Attention, forward, after FlashAttention-2 (Dao 2023, algorithm 1). A block takes kM rows of one key/value head.
// Their queries lie in shared memory; keys and values come tile by tile (kN of each), the next tile on its way while
// one is used. A thread keeps for each of its rows the greatest logit so far, in units of ln 2, its part of the sum of
// exponentials, and its part of the weighted sum of values.
#include "loam/kernels/cuda/attention_layout.cuh"
#include "loam/kernels/cuda/register.h"

namespace loam::cuda {
namespace {

template <class L>
constexpr int forward_bytes() {
  constexpr int kElement = static_cast<int>(sizeof(typename L::Element));
  return (L::kM + 4 * L::kN) * L::kD * kElement + L::kM * static_cast<int>(sizeof(Query)) + L::kScratch * 4;
}

// Takes the logits s of a tile (times `factor` in units of ln 2, -inf where a key is not seen) into the rows' maxima
// and sums, and turns them into exp(s - maximum).
template <class L>
__device__ inline void online_softmax(float (&s)[L::kR][L::kC], float factor, float (&most)[L::kR],
                                      float (&total)[L::kR], float (&sums)[L::kR][L::kDc]) {
  float shrink[L::kR];
  bool shrinks = false;
#pragma unroll
  for (int i = 0; i < L::kR; ++i) {
    float row = s[i][0];
#pragma unroll
    for (int j = 1; j < L::kC; ++j) row = fmaxf(row, s[i][j]);
    row = L::over_row(row, [](float a, float b) { return fmaxf(a, b); });
    const float before = most[i];
    most[i] = fmaxf(before, row * factor);
    const float base = most[i] == -INFINITY ? 0.0f : most[i];
    shrink[i] = exp2_fast(before - base);
    shrinks = shrinks || shrink[i] != 1;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < L::kC; ++j) {
      s[i][j] = exp2_fast(fmaf(s[i][j], factor, -base));
      sum += s[i][j];
    }
    total[i] = fmaf(total[i], shrink[i], sum);
  }
  if (!__any_sync(kAllLanes, shrinks)) return;
#pragma unroll
  for (int i = 0; i < L::kR; ++i) {
#pragma unroll
    for (int j = 0; j < L::kDc; ++j) sums[i][j] *= shrink[i];
  }
}

template <class L, bool kCap>
__device__ inline void to_logits(const AttentionParams& p, const Query* queries, int key, float (&s)[L::kR][L::kC]) {
  float cap_slope;
#pragma unroll
  for (int i = 0; i < L::kR; ++i) {
    const Query query = queries[L::row(i)];
#pragma unroll
    for (int j = 0; j < L::kC; ++j) {
      s[i][j] = logit<kCap, typename L::Element>(p, query, key + L::col(j), s[i][j], cap_slope);
    }
  }
}

template <class L>
__global__ void __launch_bounds__(L::kThreads, L::kMinBlocks)
    attention_fwd_kernel(const __grid_constant__ AttentionParams p) {
  using T = typename L::Element;
  constexpr int kR = L::kR, kC = L::kC, kTile = L::kN * L::kD;
  extern __shared__ __align__(1024) unsigned char memory[];
  T* const q_tile = reinterpret_cast<T*>(memory);
  T* const tiles = q_tile + L::kM * L::kD;  // two stages of keys and values
  Query* const queries = reinterpret_cast<Query*>(tiles + 4 * kTile);
  float* const scratch = reinterpret_cast<float*>(queries + L::kM);

  // The last rows see the most keys: they go first.
  const int row_tiles = (p.rows + L::kM - 1) / L::kM;
  const int head = static_cast<int>(blockIdx.x) / row_tiles, b = head / p.K, kv = head % p.K;
  const int first = (row_tiles - 1 - static_cast<int>(blockIdx.x) % row_tiles) * L::kM;
  for (int r = threadIdx.x; r < L::kM; r += L::kThreads) queries[r] = p.query(b, kv, first + r);
  load_tile<L::kM, L::kD, L::kThreads>(q_tile, p.D, p.q.wide, first, 0, p.rows,
                                       [&](int row) { return p.row_of<const T>(p.q, b, kv, row); });
  __syncthreads();
  const int last = min(L::kM, p.rows - first) - 1;
  const int begin = queries[0].begin, end = queries[last].end;        // what some row sees
  const int all_from = queries[last].begin, all_to = queries[0].end;  // what all rows see
  const int first_key = begin / L::kN * L::kN;
  const auto key_at = [&](int key) { return p.k.at<const T>(b, key, kv); };
  const auto value_at = [&](int key) { return p.v.at<const T>(b, key, kv); };
  const auto fetch = [&](int key, T* to) {
    load_tile<L::kN, L::kD, L::kThreads>(to, p.D, p.k.wide, key, begin, end, key_at);
    load_tile<L::kN, L::kD, L::kThreads>(to + kTile, p.D, p.v.wide, key, begin, end, value_at);
  };

  float sums[kR][L::kDc], most[kR], total[kR];
  for (bool clean = false;; clean = true) {
    clear(sums);
#pragma unroll
    for (int i = 0; i < kR; ++i) most[i] = -INFINITY, total[i] = 0;
    if (first_key < end) fetch(first_key, tiles);
    int stage = 0;
#pragma unroll 1
    for (int key = first_key; key < end; key += L::kN, stage ^= 1) {
      T *const k_tile = tiles + stage * 2 * kTile, *const v_tile = k_tile + kTile;
      wait_for_copies();
      __syncthreads();
      if (key + L::kN < end) fetch(key + L::kN, tiles + (stage ^ 1) * 2 * kTile);
      uint32_t dropped[kR];
      if (p.drops) {
        L::dropped_by_row(dropped, p.draws(b), p.drop_bound, key, [&](int row) { return queries[row].draw; });
      }
      float s[kR][kC];
      L::scores(s, q_tile, k_tile);
      if (!p.plain) p.softcap > 0 ? to_logits<L, true>(p, queries, key, s) : to_logits<L, false>(p, queries, key, s);
      if (key < all_from || key + L::kN > all_to) {
#pragma unroll
        for (int i = 0; i < kR; ++i) {
          const Query& query = queries[L::row(i)];
          const int from = query.begin - key, to = query.end - key;
#pragma unroll
          for (int j = 0; j < kC; ++j) s[i][j] = L::col(j) >= from && L::col(j) < to ? s[i][j] : -INFINITY;
        }
      }
      online_softmax<L>(s, p.factor, most, total, sums);
      if (p.drops) {
#pragma unroll
        for (int i = 0; i < kR; ++i) {
#pragma unroll
          for (int j = 0; j < kC; ++j) s[i][j] = dropped[i] >> j & 1 ? 0.0f : s[i][j];
        }
      }
      const bool found = clean && __syncthreads_or(clean_tile<L::kN, L::kD, L::kThreads>(v_tile));
      L::add(sums, s, v_tile, scratch);
      if (found) {
        add_seen<L>(
            sums, p.D, [&](int r) { return key + r >= begin && key + r < end ? value_at(key + r) : nullptr; },
            [&](int i, int r) { return queries[L::row(i)].sees(key + r); });
      }
    }
    wait_for_copies();
    if (!__syncthreads_or(!clean && !all_finite(sums))) break;
  }

#pragma unroll
  for (int i = 0; i < kR; ++i) {
    const float sum = L::over_row(total[i], [](float a, float c) { return a + c; });
    const int row = first + L::row(i);
    const Query& query = queries[L::row(i)];
    const bool nothing = query.begin >= query.end;
    const float inverse = nothing ? 0.0f : 1 / sum;
#pragma unroll
    for (int j = 0; j < L::kDc; ++j) sums[i][j] = nothing ? 0.0f : sums[i][j] * inverse;
    if (row >= p.rows || !L::first_in_row()) continue;
    const int t = p.position_of(row), h = p.head_of(kv, row);
    if (p.lse.data) *p.lse.at(b, t, h) = nothing ? -INFINITY : fmaf(most[i], kLn2, logf(sum));
    if (p.max_logit.data) *p.max_logit.at(b, t, h) = nothing ? -INFINITY : most[i] * kLn2;
  }
  write_sums<L>(sums, p.drops ? p.kept : 1.0f, false, q_tile, p.D, p.out.wide, first, p.rows,
                [&](int row) { return p.row_of<T>(p.out, b, kv, row); });
}

template <class L>
void launch_forward(const ExecContext& ctx, const AttentionParams& p, int64_t batch) {
  launch_attention<L>(ctx, attention_fwd_kernel<L>, batch * p.K * ceil_div(p.rows, L::kM), forward_bytes<L>(), p,
                      "attention_fwd");
}

// Layouts by the class of head dims: warps, tiles of 16 rows a warp, keys of a tile, and blocks of a multiprocessor.
template <class T, int D>
struct ForwardLayout
    : std::conditional_t<D == 64, MmaLayout<T, 4, 2, 64, 64, 2>,
                         std::conditional_t<D == 128, MmaLayout<T, 4, 2, 64, 128, 2>, MmaLayout<T, 8, 1, 64, 256, 1>>> {
};
template <int D>
struct ForwardLayout<float, D> : FmaLayout<64, 32, D> {};

void attention_fwd(const ExecContext& ctx, const AttentionFwdArgs& a) {
  if (ctx.arena->sparse() || a.out.numel() == 0) return;
  AttentionParams p(ctx, a);
  p.max_logit = StatisticView(a.max_logit);
  const int64_t batch = a.q.dim(0);
  for_float(a.q.dtype, "attention_fwd", [&](auto type) {
    for_head_dim(
        p.D, [&](auto width) { launch_forward<ForwardLayout<decltype(type), decltype(width)::value>>(ctx, p, batch); });
  });
}

}  // namespace

void register_attention_fwd_kernels(KernelTable& table) { table.attention_fwd.function = attention_fwd; }

}  // namespace loam::cuda
