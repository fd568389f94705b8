// Attention, backward: d_k and d_v. A block takes kM keys of one key/value head, which are the rows of its tiles: with
// the scores transposed, weights and their gradients are in registers as the next products need them. Queries and d_out
// come tile by tile, kN rows of all heads of the group.
#include "loam/kernels/cuda/attention_bwd.cuh"

namespace loam::cuda {
namespace {

enum class Gradients { both, keys, values };  // what a kernel makes; one by one where the sums of both have no room

template <class L>
constexpr int backward_kv_bytes() {
  constexpr int kElement = static_cast<int>(sizeof(typename L::Element));
  return (2 * L::kM + 4 * L::kN) * L::kD * kElement + 2 * L::kN * static_cast<int>(sizeof(Query)) + L::kScratch * 4;
}

template <class L, Gradients kOf>
__global__ void __launch_bounds__(L::kThreads, L::kMinBlocks)
    attention_bwd_kv_kernel(const __grid_constant__ AttentionParams p) {
  using T = typename L::Element;
  constexpr int kTile = L::kN * L::kD;
  constexpr bool kKeys = kOf != Gradients::values, kValues = kOf != Gradients::keys;
  extern __shared__ __align__(1024) unsigned char memory[];
  T *const k_tile = reinterpret_cast<T*>(memory), *const v_tile = k_tile + L::kM * L::kD;
  T* const tiles = v_tile + L::kM * L::kD;  // two stages of queries and d_out
  Query* const all_queries = reinterpret_cast<Query*>(tiles + 4 * kTile);
  float* const scratch = reinterpret_cast<float*>(all_queries + 2 * L::kN);

  const int key_tiles = (p.S + L::kM - 1) / L::kM;
  const int head = static_cast<int>(blockIdx.x) / key_tiles, b = head / p.K, kv = head % p.K;
  const int first_key = static_cast<int>(blockIdx.x) % key_tiles * L::kM, keys = min(p.S, p.keys(b));
  load_tile<L::kM, L::kD, L::kThreads>(k_tile, p.D, p.k.wide, first_key, 0, keys,
                                       [&](int key) { return p.k.at<const T>(b, key, kv); });
  load_tile<L::kM, L::kD, L::kThreads>(v_tile, p.D, p.v.wide, first_key, 0, keys,
                                       [&](int key) { return p.v.at<const T>(b, key, kv); });
  // The rows that see some of the keys.
  const int group = static_cast<int>(p.group.divisor);
  const int begin = group * first_not<L::kThreads>(p.T, [&](int t) { return p.visible(b, t).y <= first_key; });
  const int end = group * first_not<L::kThreads>(p.T, [&](int t) { return p.visible(b, t).x < first_key + L::kM; });
  const int first = begin / L::kN * L::kN;
  const auto query_at = [&](int row) { return p.row_of<const T>(p.q, b, kv, row); };
  const auto d_out_at = [&](int row) { return p.row_of<const T>(p.d_out, b, kv, row); };
  const auto fetch = [&](int row, int stage) {
    T* const to = tiles + stage * 2 * kTile;
    load_tile<L::kN, L::kD, L::kThreads>(to, p.D, p.q.wide, row, begin, end, query_at);
    load_tile<L::kN, L::kD, L::kThreads>(to + kTile, p.D, p.d_out.wide, row, begin, end, d_out_at);
    const int r = threadIdx.x / 2, half = threadIdx.x % 2;
    if (r >= L::kN) return;
    copy_chunk_async(shared_address(all_queries + stage * L::kN + r) + half * kChunk,
                     reinterpret_cast<const char*>(p.queries + int64_t{head} * p.rows + row + r) + half * kChunk,
                     row + r < p.rows);
  };

  float d_k[L::kR][L::kDc], d_v[L::kR][L::kDc];
  for (bool clean = false;; clean = true) {
    if constexpr (kKeys) clear(d_k);
    if constexpr (kValues) clear(d_v);
    if (first < end) fetch(first, 0);
    int stage = 0;
#pragma unroll 1
    for (int row = first; row < end; row += L::kN, stage ^= 1) {
      T *const q_tile = tiles + stage * 2 * kTile, *const d_out_tile = q_tile + kTile;
      const Query* const queries = all_queries + stage * L::kN;
      wait_for_copies();
      __syncthreads();
      if (row + L::kN < end) fetch(row + L::kN, stage ^ 1);
      uint32_t dropped[L::kR] = {};
      if (p.drops) {
        L::dropped_by_col(dropped, p.draws(b), p.drop_bound, first_key, [&](int i) { return queries[i].draw; });
      }
      float s[L::kR][L::kC], d[L::kR][L::kC];
      L::scores(s, k_tile, q_tile);
      if constexpr (kKeys) {
        L::scores(d, v_tile, d_out_tile);
      } else {
        clear(d);
      }
      const Query& last = queries[min(L::kN, p.rows - row) - 1];
      const bool partial = first_key < last.begin || first_key + L::kM > queries[0].end;
      score_gradients<L, false>(p, queries, first_key, dropped, partial, s, d);
      bool found = false;
      if (clean) {
        __syncthreads();  // the scores are made of the rows as they are
        found = clean_tile<L::kN, L::kD, L::kThreads>(q_tile);
        found = clean_tile<L::kN, L::kD, L::kThreads>(d_out_tile) || found;
        found = __syncthreads_or(found);
      }
      if constexpr (kValues) L::add(d_v, s, d_out_tile, scratch);
      if constexpr (kKeys) L::add(d_k, d, q_tile, scratch);
      if (found) {
        const auto sees = [&](int i, int r) { return queries[r].sees(first_key + L::row(i)); };
        const auto inside = [&](int r) { return row + r >= begin && row + r < end; };
        if constexpr (kValues) {
          add_seen<L>(
              d_v, p.D, [&](int r) { return inside(r) ? d_out_at(row + r) : nullptr; }, sees);
        }
        if constexpr (kKeys) {
          add_seen<L>(
              d_k, p.D, [&](int r) { return inside(r) ? query_at(row + r) : nullptr; }, sees);
        }
      }
    }
    bool finite = true;
    if constexpr (kKeys) finite = all_finite(d_k);
    if constexpr (kValues) finite = all_finite(d_v) && finite;
    wait_for_copies();
    if (!__syncthreads_or(!clean && !finite)) break;
  }
  if constexpr (kKeys) {
    write_sums<L>(d_k, p.scale, p.accumulate_k, k_tile, p.D, p.d_k.wide, first_key, p.S,
                  [&](int key) { return p.d_k.at<T>(b, key, kv); });
  }
  if constexpr (kValues) {
    write_sums<L>(d_v, p.drops ? p.kept : 1.0f, p.accumulate_v, v_tile, p.D, p.d_v.wide, first_key, p.S,
                  [&](int key) { return p.d_v.at<T>(b, key, kv); });
  }
}

template <class L, Gradients kOf = Gradients::both>
void launch_backward_kv(const ExecContext& ctx, const AttentionParams& p, int64_t batch) {
  launch_attention<L>(ctx, attention_bwd_kv_kernel<L, kOf>, batch * p.K * ceil_div(p.S, L::kM), backward_kv_bytes<L>(),
                      p, "attention_bwd");
}

// The layout of each class of head dims.
template <class T, int D>
void launch_class(const ExecContext& ctx, const AttentionParams& p, int64_t batch) {
  if constexpr (std::is_same_v<T, float>) {
    launch_backward_kv<FmaLayout<64, D == 256 ? 16 : 32, D>>(ctx, p, batch);
  } else if constexpr (D == 64) {
    launch_backward_kv<MmaLayout<T, 4, 2, 32, 64, 2>>(ctx, p, batch);
  } else if constexpr (D == 128) {
    launch_backward_kv<MmaLayout<T, 8, 1, 64, 128, 1>>(ctx, p, batch);
  } else {
    using L = MmaLayout<T, 8, 1, 32, 256, 1>;
    launch_backward_kv<L, Gradients::values>(ctx, p, batch);
    launch_backward_kv<L, Gradients::keys>(ctx, p, batch);
  }
}

}  // namespace

void attention_bwd_kv(const ExecContext& ctx, const AttentionParams& p, DType dtype, int64_t batch) {
  for_float(dtype, "attention_bwd", [&](auto type) {
    for_head_dim(p.D, [&](auto width) { launch_class<decltype(type), decltype(width)::value>(ctx, p, batch); });
  });
}

}  // namespace loam::cuda
