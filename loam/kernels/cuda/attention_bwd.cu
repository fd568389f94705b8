// Attention, backward: what is needed of each row, then d_q. d_k and d_v are in attention_bwd_kv.cu; both make the
// weights again (Dao 2023, algorithm 2, with its two loops apart, so that every sum has one owner and a fixed order).
#include "loam/kernels/cuda/attention_bwd.cuh"
#include "loam/kernels/cuda/register.h"

namespace loam::cuda {
namespace {

constexpr int kPrepareThreads = 256, kPrepareLanes = 8;

// Fills params.queries: eight lanes take a row.
template <class T>
__global__ void prepare_queries_kernel(const __grid_constant__ AttentionParams p, int64_t all_rows) {
  const int64_t index = (int64_t{blockIdx.x} * kPrepareThreads + threadIdx.x) / kPrepareLanes;
  const int lane = threadIdx.x % kPrepareLanes;
  const int head = static_cast<int>(min(index, all_rows - 1) / p.rows), b = head / p.K, kv = head % p.K;
  const int row = static_cast<int>(min(index, all_rows - 1) - int64_t{head} * p.rows);
  const T *out = p.row_of<const T>(p.out, b, kv, row), *d_out = p.row_of<const T>(p.d_out, b, kv, row);
  constexpr int kPer = kChunk / static_cast<int>(sizeof(T));
  float dot = 0;
  for (int i = lane * kPer; i < p.D; i += kPrepareLanes * kPer) {
    if (p.out.wide && p.d_out.wide) {
      const Pack<kPer> x = load<kPer>(out + i), y = load<kPer>(d_out + i);
#pragma unroll
      for (int k = 0; k < kPer; ++k) dot = fmaf(x.v[k], y.v[k], dot);
    } else {
      for (int k = 0; k < kPer; ++k) dot = fmaf(to_float(out[i + k]), to_float(d_out[i + k]), dot);
    }
  }
#pragma unroll
  for (int step = 1; step < kPrepareLanes; step *= 2) dot += __shfl_xor_sync(kAllLanes, dot, step);
  if (lane > 0 || index >= all_rows) return;
  Query query = p.query(b, kv, row);
  query.dot = dot;
  query.lse2 = query.begin < query.end ? *p.lse.at(b, p.position_of(row), p.head_of(kv, row)) * kLog2e : INFINITY;
  p.queries[index] = query;
}

template <class L>
constexpr int backward_q_bytes() {
  constexpr int kElement = static_cast<int>(sizeof(typename L::Element));
  return (2 * L::kM + 4 * L::kN) * L::kD * kElement + L::kM * static_cast<int>(sizeof(Query)) + L::kScratch * 4;
}

// A block takes kM rows of one key/value head, whose queries and d_out lie in shared memory, and meets keys and values
// tile by tile, the next tile on its way while one is used.
template <class L>
__global__ void __launch_bounds__(L::kThreads, L::kMinBlocks)
    attention_bwd_q_kernel(const __grid_constant__ AttentionParams p) {
  using T = typename L::Element;
  constexpr int kTile = L::kN * L::kD;
  extern __shared__ __align__(1024) unsigned char memory[];
  T *const q_tile = reinterpret_cast<T*>(memory), *const d_out_tile = q_tile + L::kM * L::kD;
  T* const tiles = d_out_tile + L::kM * L::kD;  // two stages of keys and values
  Query* const queries = reinterpret_cast<Query*>(tiles + 4 * kTile);
  float* const scratch = reinterpret_cast<float*>(queries + L::kM);

  // The last rows see the most keys: they go first.
  const int row_tiles = (p.rows + L::kM - 1) / L::kM;
  const int head = static_cast<int>(blockIdx.x) / row_tiles, b = head / p.K, kv = head % p.K;
  const int first = (row_tiles - 1 - static_cast<int>(blockIdx.x) % row_tiles) * L::kM;
  for (int r = threadIdx.x; r < L::kM; r += L::kThreads) {
    queries[r] = first + r < p.rows ? p.queries[int64_t{head} * p.rows + first + r] : Query{};
  }
  load_tile<L::kM, L::kD, L::kThreads>(q_tile, p.D, p.q.wide, first, 0, p.rows,
                                       [&](int row) { return p.row_of<const T>(p.q, b, kv, row); });
  load_tile<L::kM, L::kD, L::kThreads>(d_out_tile, p.D, p.d_out.wide, first, 0, p.rows,
                                       [&](int row) { return p.row_of<const T>(p.d_out, b, kv, row); });
  __syncthreads();
  const int last = min(L::kM, p.rows - first) - 1;
  const int begin = queries[0].begin, end = queries[last].end;        // what some row sees
  const int all_from = queries[last].begin, all_to = queries[0].end;  // what all rows see
  const int first_key = begin / L::kN * L::kN;
  const auto key_at = [&](int key) { return p.k.at<const T>(b, key, kv); };
  const auto fetch = [&](int key, T* to) {
    load_tile<L::kN, L::kD, L::kThreads>(to, p.D, p.k.wide, key, begin, end, key_at);
    load_tile<L::kN, L::kD, L::kThreads>(to + kTile, p.D, p.v.wide, key, begin, end,
                                         [&](int row) { return p.v.at<const T>(b, row, kv); });
  };

  float sums[L::kR][L::kDc];
  for (bool clean = false;; clean = true) {
    clear(sums);
    if (first_key < end) fetch(first_key, tiles);
    int stage = 0;
#pragma unroll 1
    for (int key = first_key; key < end; key += L::kN, stage ^= 1) {
      T *const k_tile = tiles + stage * 2 * kTile, *const v_tile = k_tile + kTile;
      wait_for_copies();
      __syncthreads();
      if (key + L::kN < end) fetch(key + L::kN, tiles + (stage ^ 1) * 2 * kTile);
      uint32_t dropped[L::kR] = {};
      if (p.drops) {
        L::dropped_by_row(dropped, p.draws(b), p.drop_bound, key, [&](int i) { return queries[i].draw; });
      }
      float s[L::kR][L::kC], d[L::kR][L::kC];
      L::scores(s, q_tile, k_tile);
      L::scores(d, d_out_tile, v_tile);
      score_gradients<L, true>(p, queries, key, dropped, key < all_from || key + L::kN > all_to, s, d);
      bool found = false;
      if (clean) {
        __syncthreads();  // the scores are made of the keys as they are
        found = __syncthreads_or(clean_tile<L::kN, L::kD, L::kThreads>(k_tile));
      }
      L::add(sums, d, k_tile, scratch);
      if (found) {
        add_seen<L>(
            sums, p.D, [&](int r) { return key + r >= begin && key + r < end ? key_at(key + r) : nullptr; },
            [&](int i, int r) { return queries[L::row(i)].sees(key + r); });
      }
    }
    wait_for_copies();
    if (!__syncthreads_or(!clean && !all_finite(sums))) break;
  }
  write_sums<L>(sums, p.scale, p.accumulate_q, q_tile, p.D, p.d_q.wide, first, p.rows,
                [&](int row) { return p.row_of<T>(p.d_q, b, kv, row); });
}

template <class L>
void launch_backward_q(const ExecContext& ctx, const AttentionParams& p, int64_t batch) {
  launch_attention<L>(ctx, attention_bwd_q_kernel<L>, batch * p.K * ceil_div(p.rows, L::kM), backward_q_bytes<L>(), p,
                      "attention_bwd");
}

// Layouts by the class of head dims, as for the forward.
template <class T, int D>
struct BackwardLayout
    : std::conditional_t<D == 64, MmaLayout<T, 4, 2, 32, 64, 2>,
                         std::conditional_t<D == 128, MmaLayout<T, 4, 2, 32, 128, 2>, MmaLayout<T, 8, 1, 32, 256, 1>>> {
};
template <int D>
struct BackwardLayout<float, D> : FmaLayout<64, D == 256 ? 16 : 32, D> {};

void attention_bwd(const ExecContext& ctx, const AttentionBwdArgs& a) {
  const int64_t batch = a.q.dim(0);
  AttentionParams p(ctx, a);
  if (batch == 0 || p.K == 0) return;
  p.d_out = HeadsView(a.d_out), p.d_q = HeadsView(a.d_q), p.d_k = HeadsView(a.d_k), p.d_v = HeadsView(a.d_v);
  p.accumulate_q = a.accumulate_q, p.accumulate_k = a.accumulate_k, p.accumulate_v = a.accumulate_v;
  const int64_t all_rows = batch * p.K * p.rows;
  const Tensor queries =
      ctx.empty({all_rows, static_cast<int64_t>(sizeof(Query)) / 4}, DType::f32, MemoryKind::workspace);
  if (ctx.arena->sparse()) return;
  p.queries = reinterpret_cast<Query*>(queries.data<float>());
  if (all_rows > 0) {
    for_float(a.q.dtype, "attention_bwd", [&](auto type) {
      using T = decltype(type);
      const auto blocks = static_cast<unsigned>(ceil_div(all_rows * kPrepareLanes, kPrepareThreads));
      prepare_queries_kernel<T><<<blocks, kPrepareThreads, 0, stream_of(ctx.stream)>>>(p, all_rows);
      launched("attention_bwd");
      for_head_dim(p.D,
                   [&](auto width) { launch_backward_q<BackwardLayout<T, decltype(width)::value>>(ctx, p, batch); });
    });
  }
  attention_bwd_kv(ctx, p, a.q.dtype, batch);
}

}  // namespace

void register_attention_bwd_kernels(KernelTable& table) { table.attention_bwd.function = attention_bwd; }

}  // namespace loam::cuda
