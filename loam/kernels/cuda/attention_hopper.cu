// Attention, forward, on Hopper, after FlashAttention-3 (Shah et al. 2024).
//
// A block stays on its multiprocessor and takes tile after tile: 64 queries of one head for each of its warpgroups that
// compute. One more warp only copies: queries once a tile, keys and values into rings of stages. Two things overlap:
// within a warpgroup the scores of the next keys are multiplied while this one's softmax waits for its values, and
// between warpgroups, which take turns in issuing products, one's softmax runs under the others' products.
#include "loam/kernels/cuda/attention_hopper.h"

#include <cudaTypedefs.h>

#include <array>

#include "loam/kernels/cuda/attention_hopper.cuh"

namespace loam::cuda {
namespace {

template <int kWidth, int kGroupsOfBlock, int kRing>
struct HopperLayout {
  static constexpr int kD = kWidth, kGroups = kGroupsOfBlock, kStages = kRing;
  static constexpr int kM = 64 * kGroups, kN = 128, kPanels = kD / kPanel;
  static constexpr int kThreads = kWarpgroup * (kGroups + 1);
  static constexpr int kRegisters = kGroups == 2 ? 232 : 160, kRegistersOfCopier = kGroups == 2 ? 40 : 32;
  static constexpr int kQueryBytes = kM * kD * 2, kKeyBytes = kN * kD * 2;
  // Of shared memory: queries, the rings of keys and values, results on their way out, barriers.
  static constexpr int kKeysAt = kQueryBytes, kValuesAt = kKeysAt + kStages * kKeyBytes;
  static constexpr int kOutAt = kValuesAt + kStages * kKeyBytes, kBarriersAt = kOutAt + kQueryBytes;
  static constexpr int kBytes =
      kBarriersAt + 8 * (2 + 4 * kStages) + TileQueue::kBytes + 1024;  // the start is moved to a multiple of 1024
};

struct HopperParams {
  CUtensorMap q, k, v, out;
  AttentionParams p;
  int heads = 0, row_tiles = 0, tiles = 0;
  int* drawn = nullptr;
  int together = 1;  // heads whose keys and values the L2 cache holds at a time
};

// What a tile is: queries first to first + kM of head h of batch row b, and the blocks of keys that any of them sees.
struct Tile {
  int b, h, kv, first, begin, end;
  int begin_block, end_block;
};
template <class L>
__device__ inline Tile tile_at_place(const HopperParams& params, int place) {
  const AttentionParams& p = params.p;
  const int section = params.together * params.row_tiles, s = place / section;
  const int heads = min(params.together, params.heads - s * params.together), rest = place - s * section;
  Tile tile;
  const int head = s * params.together + rest % heads;
  const int H = p.K * static_cast<int>(p.group.divisor);
  tile.b = head / H, tile.h = head % H, tile.kv = p.group.quotient(tile.h);
  tile.first = (params.row_tiles - 1 - rest / heads) * L::kM;
  const int last = min(tile.first + L::kM, p.T) - 1;
  tile.begin = p.visible(tile.b, tile.first).x, tile.end = p.visible(tile.b, last).y;
  tile.begin_block = tile.begin / L::kN;
  tile.end_block = tile.end > tile.begin ? (tile.end + L::kN - 1) / L::kN : tile.begin_block;
  return tile;
}

// Addresses in shared memory.
template <class L>
struct Shared {
  uint32_t base;
  __device__ uint32_t query(int panel, int row) const { return base + panel * L::kM * kPanelRow + row * kPanelRow; }
  __device__ uint32_t key(int stage, int panel) const {
    return base + L::kKeysAt + stage * L::kKeyBytes + panel * L::kN * kPanelRow;
  }
  __device__ uint32_t value(int stage, int panel) const {
    return base + L::kValuesAt + stage * L::kKeyBytes + panel * L::kN * kPanelRow;
  }
  // Of a warpgroup.
  __device__ uint32_t out(int group, int panel) const {
    return base + L::kOutAt + (group * L::kPanels + panel) * 64 * kPanelRow;
  }
  __device__ uint32_t barrier(int i) const { return base + L::kBarriersAt + 8 * i; }
  __device__ uint32_t query_full() const { return barrier(0); }
  __device__ uint32_t query_empty() const { return barrier(1); }
  __device__ uint32_t key_full(int stage) const { return barrier(2 + stage); }
  __device__ uint32_t key_empty(int stage) const { return barrier(2 + L::kStages + stage); }
  __device__ uint32_t value_full(int stage) const { return barrier(2 + 2 * L::kStages + stage); }
  __device__ uint32_t value_empty(int stage) const { return barrier(2 + 3 * L::kStages + stage); }
};

template <class L>
__device__ void copy_tiles(const HopperParams& params, const Shared<L>& shared, TileQueue& queue) {
  Ring keys, values;
  uint32_t query_parity = 1;
  const auto load_keys = [&](const Tile& tile, int block) {
    wait(shared.key_empty(keys.stage), keys.parity ^ 1);
    arrive_expecting(shared.key_full(keys.stage), L::kKeyBytes);
    for (int panel = 0; panel < L::kPanels; ++panel) {
      load_box(shared.key(keys.stage, panel), params.k, shared.key_full(keys.stage), panel * kPanel, block * L::kN,
               tile.kv, tile.b);
    }
    keys.advance<L::kStages>();
  };
  const auto load_values = [&](const Tile& tile, int block) {
    wait(shared.value_empty(values.stage), values.parity ^ 1);
    arrive_expecting(shared.value_full(values.stage), L::kKeyBytes);
    for (int panel = 0; panel < L::kPanels; ++panel) {
      load_box(shared.value(values.stage, panel), params.v, shared.value_full(values.stage), panel * kPanel,
               block * L::kN, tile.kv, tile.b);
    }
    values.advance<L::kStages>();
  };
  queue.hand_out([&](int place) {
    const Tile tile = tile_at_place<L>(params, place);
    if (tile.begin_block == tile.end_block) return;
    wait(shared.query_empty(), query_parity);
    query_parity ^= 1;
    arrive_expecting(shared.query_full(), L::kQueryBytes);
    for (int panel = 0; panel < L::kPanels; ++panel) {
      load_box(shared.query(panel, 0), params.q, shared.query_full(), panel * kPanel, tile.first, tile.h, tile.b);
    }
    load_keys(tile, tile.end_block - 1);
    for (int block = tile.end_block - 2; block >= tile.begin_block; --block) {
      load_keys(tile, block);
      load_values(tile, block + 1);
    }
    load_values(tile, tile.begin_block);
  });
}

// The rows of a thread: row(0) and row(1) eight below; see product_abt.
struct Rows2 {
  int2 seen[2];             // the keys that each sees
  float most[2], total[2];  // the greatest logit in units of `factor`, and the thread's part of the sum of exponentials
};

// The output of query t by a warp, key by key, into its row of the results on their way out; gives its lse.
template <class L>
__device__ __noinline__ float redo_row(const AttentionParams& p, const Shared<L> shared, int group, int b, int h, int t,
                                       int row) {
  constexpr int kPer = L::kD / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, kv = p.group.quotient(h);
  const auto element = [&](const HeadsView& view, int64_t at, int head, int i) {
    const int d = lane * kPer + i;
    return d < p.D ? to_float(view.at<const __nv_bfloat16>(b, at, head)[d]) : 0.0f;
  };
  const int2 seen = p.visible(b, t);
  float query[kPer], sum[kPer] = {}, most = -INFINITY, total = 0;
  for (int i = 0; i < kPer; ++i) query[i] = element(p.q, t, h, i);
  for (int key = seen.x; key < seen.y; ++key) {
    float score = 0, slope;
    for (int i = 0; i < kPer; ++i) score = fmaf(query[i], element(p.k, key, kv, i), score);
    score = warp_sum(score);
    const float x = p.plain ? score * p.factor : logit<true, __nv_bfloat16>(p, Query(), 0, score, slope);
    const float before = most;
    most = fmaxf(most, x);
    const float base = most == -INFINITY ? 0.0f : most;
    const float shrink = exp2_fast(before - base), weight = exp2_fast(x - base);
    total = fmaf(total, shrink, weight);
    for (int i = 0; i < kPer; ++i) sum[i] = fmaf(weight, element(p.v, key, kv, i), sum[i] * shrink);
  }
  for (int i = 0; i < kPer; ++i) {
    const int d = lane * kPer + i, n = d / 8;
    const uint32_t to = shared.out(group, n / 8) + swizzled<kPanelRow>(row, n % 8) + d % 8 * 2;
    const __nv_bfloat16 x = __float2bfloat16_rn(sum[i] / total);
    asm volatile("st.shared.b16 [%0], %1;\n" ::"r"(to), "h"(*reinterpret_cast<const uint16_t*>(&x)) : "memory");
  }
  return fmaf(most, kLn2, logf(total));
}

template <class L>
struct Computer {
  const HopperParams& params;
  const AttentionParams& p;
  const Shared<L>& shared;
  const int group, lane, warp;  // of the warpgroups that compute; of the warpgroup
  Ring keys, values;
  uint32_t query_parity = 0;
  float scores[L::kN / 2], sums[L::kD / 2];
  uint32_t weights[L::kN / 4];

  __device__ __forceinline__ void multiply_scores() {
    pin(scores);
    begin_products();
#pragma unroll
    for (int k = 0; k < L::kD / 16; ++k) {
      product_abt<L::kN>(scores, panel_along_k(shared.query(k / 4, group * 64)) + k % 4 * kNextK,
                         panel_along_k(shared.key(keys.stage, k / 4)) + k % 4 * kNextK, k > 0);
    }
    end_products();
    pin(scores);
  }
  __device__ __forceinline__ void multiply_values() {
    pin(sums);
    begin_products();
#pragma unroll
    for (int k = 0; k < L::kN / 16; ++k) {
      product_ab<L::kD>(sums, weights + 4 * k,
                        panel_across_k(shared.value(values.stage, 0), L::kN * kPanelRow) + k * kNextAcross);
    }
    end_products();
    pin(sums);
  }
  __device__ __forceinline__ void release_keys() {
    arrive_as_warp(shared.key_empty(keys.stage));
    keys.advance<L::kStages>();
  }
  __device__ __forceinline__ void release_values() {
    arrive_as_warp(shared.value_empty(values.stage));
    values.advance<L::kStages>();
  }

  // Scores of keys from `key` on that a row does not see become -inf.
  __device__ __forceinline__ void mask(const Rows2& rows, int key) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int from = rows.seen[h].x - key - lane % 4 * 2, to = rows.seen[h].y - key - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < L::kN / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& s = scores[4 * n + 2 * h + e];
          s = 8 * n + e >= from && 8 * n + e < to ? s : -INFINITY;
        }
      }
    }
  }
  template <bool kCap>
  __device__ __forceinline__ void cap() {
    if constexpr (kCap) {
      const Query query;
      float slope;
#pragma unroll
      for (float& s : scores) s = logit<true, __nv_bfloat16>(p, query, 0, s, slope);
    }
  }
  // Takes the scores into maxima and sums; they become exp(logit - maximum). `shrink`: what earlier sums are to be
  // multiplied by.
  __device__ __forceinline__ bool soften(Rows2& rows, float (&shrink)[2]) {
    bool shrinks = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = scores[2 * h];
#pragma unroll
      for (int n = 0; n < L::kN / 8; ++n) most = fmaxf(most, fmaxf(scores[4 * n + 2 * h], scores[4 * n + 2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      const float before = rows.most[h];
      rows.most[h] = fmaxf(before, most * p.factor);
      const float base = rows.most[h] == -INFINITY ? 0.0f : rows.most[h];
      shrink[h] = exp2_fast(before - base);
      shrinks = shrinks || shrink[h] != 1;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < L::kN / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& s = scores[4 * n + 2 * h + e];
          s = exp2_fast(fmaf(s, p.factor, -base));
          sum += s;
        }
      }
      rows.total[h] = fmaf(rows.total[h], shrink[h], sum);
    }
    return __any_sync(kAllLanes, shrinks);
  }
  __device__ __forceinline__ void shrink_sums(const float (&shrink)[2]) {
#pragma unroll
    for (int n = 0; n < L::kD / 8; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sums[4 * n + 2 * h] *= shrink[h];
        sums[4 * n + 2 * h + 1] *= shrink[h];
      }
    }
  }
  // Products take the scores as they lie.
  __device__ __forceinline__ void take_weights() {
#pragma unroll
    for (int i = 0; i < L::kN / 4; ++i) weights[i] = pack_pair<__nv_bfloat16>(scores[2 * i], scores[2 * i + 1]);
  }

  // Warpgroups issue products in turn: each waits until all others have since it did last.
  static constexpr int kTurn = 4;  // of the numbers of barriers, the first
  __device__ __forceinline__ void wait_for_turn() { meet(kTurn + group, L::kGroups * kWarpgroup); }
  __device__ __forceinline__ void pass_turn() {
#pragma unroll
    for (int i = 1; i < L::kGroups; ++i) pass(kTurn + (group + i) % L::kGroups, L::kGroups * kWarpgroup);
  }

  template <bool kCap>
  __device__ __forceinline__ void compute_tile(const Tile& tile);
  __device__ __forceinline__ void finish_tile(const Tile& tile, const Rows2& rows);
};

template <class L>
template <bool kCap>
__device__ __forceinline__ void Computer<L>::compute_tile(const Tile& tile) {
  Rows2 rows;
  const int first = tile.first + group * 64;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int t = first + warp * 16 + h * 8 + lane / 4;
    rows.seen[h] = t < p.T ? p.visible(tile.b, t) : int2{0, 0};
    rows.most[h] = -INFINITY, rows.total[h] = 0;
  }
#pragma unroll
  for (float& x : sums) x = 0;
  if (tile.begin_block == tile.end_block) return finish_tile(tile, rows);
  // Keys that every row of the warpgroup sees; rows past the end do not count, whatever they compute is not written.
  const int all_from = first < p.T ? p.visible(tile.b, min(first + 63, p.T - 1)).x : 0;
  const int all_to = first < p.T ? p.visible(tile.b, first).y : tile.end;
  const auto take_scores = [&](int block, float(&shrink)[2]) {
    cap<kCap>();
    const int key = block * L::kN;
    if (key < all_from || key + L::kN > all_to) mask(rows, key);
    return soften(rows, shrink);
  };

  float shrink[2];
  int block = tile.end_block - 1;
  wait(shared.query_full(), query_parity);
  query_parity ^= 1;
  wait(shared.key_full(keys.stage), keys.parity);
  multiply_scores();
  wait_for_products<0>();
  pin(scores);
  release_keys();
  take_scores(block, shrink);
  take_weights();
#pragma unroll 1
  for (--block; block >= tile.begin_block; --block) {
    wait(shared.key_full(keys.stage), keys.parity);
    wait_for_turn();
    multiply_scores();
    wait(shared.value_full(values.stage), values.parity);
    multiply_values();
    pass_turn();
    wait_for_products<1>();
    pin(scores);
    release_keys();
    const bool shrinks = take_scores(block, shrink);
    wait_for_products<0>();
    pin(sums);
    release_values();
    if (shrinks) shrink_sums(shrink);
    take_weights();
  }
  arrive_as_warp(shared.query_empty());
  wait(shared.value_full(values.stage), values.parity);
  multiply_values();
  wait_for_products<0>();
  pin(sums);
  release_values();
  finish_tile(tile, rows);
}

template <class L>
__device__ __forceinline__ void Computer<L>::finish_tile(const Tile& tile, const Rows2& rows) {
  const bool stores = warp == 0 && lane == 0;
  if (stores) wait_for_stores();
  meet(1 + group, kWarpgroup);  // the results of the last tile are out
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = rows.total[h];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const int row = warp * 16 + h * 8 + lane / 4, t = tile.first + group * 64 + row;
    const bool nothing = rows.seen[h].x >= rows.seen[h].y;
    const float inverse = nothing ? 0.0f : 1 / sum;
    float probe = 0;
#pragma unroll
    for (int n = 0; n < L::kD / 8; ++n) {
      float &x = sums[4 * n + 2 * h], &y = sums[4 * n + 2 * h + 1];
      probe = fmaf(x, 0.0f, fmaf(y, 0.0f, probe));
      const uint32_t pair = nothing ? 0u : pack_pair<__nv_bfloat16>(x * inverse, y * inverse);
      const uint32_t to = shared.out(group, n / 8) + swizzled<kPanelRow>(row, n % 8) + lane % 4 * 4;
      asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(to), "r"(pair) : "memory");
    }
    float lse = nothing ? -INFINITY : fmaf(rows.most[h], kLn2, logf(sum));
    // A value that is not finite has spread to rows that do not see it: they are made again, one by one.
    const unsigned bad = __ballot_sync(kAllLanes, probe != 0 && !nothing && t < p.T);
    if (bad != 0) {
#pragma unroll 1
      for (int quad = 0; quad < 8; ++quad) {
        if (!(bad >> 4 * quad & 0xF)) continue;
        const float again = redo_row<L>(p, shared, group, tile.b, tile.h, t - lane / 4 + quad, row - lane / 4 + quad);
        if (lane / 4 == quad) lse = again;
      }
    }
    if (p.lse.data && lane % 4 == 0 && t < p.T) *p.lse.at(tile.b, t, tile.h) = lse;
  }
  publish_shared();
  meet(1 + group, kWarpgroup);
  if (stores && tile.first + group * 64 < p.T) {
    for (int panel = 0; panel < L::kPanels; ++panel) {
      store_box(params.out, shared.out(group, panel), panel * kPanel, tile.first + group * 64, tile.h, tile.b);
    }
  }
}

template <class L, bool kCap>
__global__ void __launch_bounds__(L::kThreads, 1) attention_hopper_kernel(const __grid_constant__ HopperParams params) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const Shared<L> shared{(shared_address(memory) + 1023) & ~1023u};
  TileQueue queue{shared.barrier(2 + 4 * L::kStages), params.drawn, params.tiles};
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&params.q, &params.k, &params.v, &params.out}) fetch_tensor_map(*map);
    constexpr int kWarps = 4 * L::kGroups;
    init_barrier(shared.query_full(), 1), init_barrier(shared.query_empty(), kWarps);
    for (int stage = 0; stage < L::kStages; ++stage) {
      init_barrier(shared.key_full(stage), 1), init_barrier(shared.key_empty(stage), kWarps);
      init_barrier(shared.value_full(stage), 1), init_barrier(shared.value_empty(stage), kWarps);
    }
    queue.init(kWarps);
    publish_barriers();
  }
  __syncthreads();
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(L::kRegistersOfCopier));
    if (threadIdx.x == 0) copy_tiles<L>(params, shared, queue);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(L::kRegisters));
    Computer<L> computer{params,
                         params.p,
                         shared,
                         group - 1,
                         static_cast<int>(threadIdx.x) % kWarp,
                         static_cast<int>(threadIdx.x) / kWarp % 4};
    // The first turn is the first warpgroup's, the second the second's.
    for (int next = 0; next < computer.group; ++next) pass(computer.kTurn + next, L::kGroups * kWarpgroup);
    for (int place; (place = queue.take()) >= 0;) {
      computer.template compute_tile<kCap>(tile_at_place<L>(params, place));
    }
    wait_for_stores();
  }
#endif
}

template <class L>
bool launch(const ExecContext& ctx, const AttentionFwdArgs& a) {
  HopperParams params{{}, {}, {}, {}, AttentionParams(ctx, a)};
  if (!make_map(params.q, a.q, L::kM) || !make_map(params.k, a.k, L::kN) || !make_map(params.v, a.v, L::kN) ||
      !make_map(params.out, a.out, 64)) {
    return false;
  }
  const int64_t heads = a.q.dim(0) * a.q.dim(2), row_tiles = ceil_div(a.q.dim(1), L::kM);
  if (heads * row_tiles > INT_MAX / 2) return false;
  params.heads = static_cast<int>(heads), params.row_tiles = static_cast<int>(row_tiles);
  params.tiles = params.heads * params.row_tiles;
  params.together = heads_together(heads, a.q.dim(2) / a.k.dim(2), a.k.dim(1) * a.k.dim(3) * 4);
  const auto kernel = params.p.softcap > 0 ? attention_hopper_kernel<L, true> : attention_hopper_kernel<L, false>;
  const Tensor drawn = ctx.empty({1}, DType::i32, MemoryKind::workspace);
  params.drawn = drawn.data<int32_t>();
  LOAM_CUDA(cudaMemsetAsync(params.drawn, 0, sizeof(int), stream_of(ctx.stream)));
  LOAM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes));
  const int blocks = std::min(params.tiles, hopper_multiprocessors());
  kernel<<<static_cast<unsigned>(blocks), L::kThreads, L::kBytes, stream_of(ctx.stream)>>>(params);
  launched("attention_fwd");
  return true;
}

}  // namespace

// [B,T,H,D] as the copy engine sees it, in boxes of `rows` positions.
bool make_map(CUtensorMap& map, const View& v, int rows) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const auto status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess
               ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)
               : nullptr;
  }();
  if (!encode) return false;
  std::array<cuuint64_t, 4> sizes{};
  std::array<cuuint64_t, 3> strides{};
  const std::array<int, 4> axes{3, 1, 2, 0};
  for (size_t i = 0; i < 4; ++i) sizes[i] = static_cast<cuuint64_t>(v.dim(axes[i]));
  for (size_t i = 1; i < 4; ++i) {
    // That of an axis of one, which is never used, as something that is allowed.
    const int64_t stride = v.dim(axes[i]) > 1 ? v.stride(axes[i]) : int64_t{8};
    if (stride <= 0 || stride % 8 != 0) return false;
    strides[i - 1] = static_cast<cuuint64_t>(stride) * 2;
  }
  if (reinterpret_cast<uintptr_t>(v.data) % 16 != 0) return false;
  const std::array<cuuint32_t, 4> box{kPanel, static_cast<cuuint32_t>(rows), 1, 1}, steps{1, 1, 1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, v.data, sizes.data(), strides.data(), box.data(),
                steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int hopper_multiprocessors() {
  static const int count = [] {
    int device = 0;
    if (cuda::count() == 0) return 0;
    LOAM_CUDA(cudaGetDevice(&device));
    const DeviceProperties properties = cuda::properties({DeviceKind::cuda, static_cast<int8_t>(device)});
    return properties.major == 9 && properties.minor == 0 ? properties.multiprocessors : 0;
  }();
  return count;
}

int heads_together(int64_t heads, int64_t group, int64_t bytes) {
  constexpr int64_t kCached = int64_t{24} << 20;
  return static_cast<int>(std::min(heads, group * std::max<int64_t>(1, kCached / std::max<int64_t>(1, bytes))));
}

bool hopper_attention_fwd(const ExecContext& ctx, const AttentionFwdArgs& a) {
  const bool takes = a.q.dtype == DType::bf16 && a.q.dim(3) <= 128 && !a.max_logit && !a.logits.slopes &&
                     a.dropout.probability == 0 && a.logits.scale > 0 && std::isfinite(a.logits.scale) &&
                     a.k.dim(1) > 0;
  if (!takes || hopper_multiprocessors() == 0) return false;
  if (a.q.dim(3) > 64) return launch<HopperLayout<128, 2, 2>>(ctx, a);
  // Of short rows, tiles of fewer queries leave less of themselves beyond the end and the diagonal.
  return a.q.dim(1) < 2048 ? launch<HopperLayout<64, 2, 4>>(ctx, a) : launch<HopperLayout<64, 3, 4>>(ctx, a);
}

}  // namespace loam::cuda
