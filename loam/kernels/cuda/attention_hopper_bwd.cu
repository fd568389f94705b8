// Attention, backward, on Hopper, after FlashAttention-3 (Shah et al. 2024).
//
// A block takes kN keys of one key/value head, half of them for each of its two warpgroups, and meets the queries that
// see any of them, kM at a time. It keeps d_k and d_v of its keys in registers. Scores and their gradients are made
// transposed, keys by queries, so that they are at hand as the left operand of d_v = P^T d_out and d_k = dS^T q; for
// d_q = dS k they pass through shared memory. Sums of d_q belong to all blocks of a head: they are added in f32 in
// memory, in no fixed order, and rounded by a kernel of their own.
#include "loam/kernels/cuda/attention_hopper.cuh"
#include "loam/kernels/cuda/attention_hopper.h"

namespace loam::cuda {
namespace {

constexpr int kN = 128, kHalf = 64, kComputers = 2 * kWarpgroup;
constexpr int kThreads = kComputers + kWarpgroup, kStages = 2;

template <int kWidth>
struct BackwardLayout {
  static constexpr int kD = kWidth, kM = kD == 64 ? 128 : 64, kPanels = kD / kPanel;
  static constexpr int kKeyBytes = kN * kD * 2, kQueryBytes = kM * kD * 2, kScoreBytes = kM * kN * 2;
  static constexpr int kKeysAt = 0, kValuesAt = kKeyBytes, kQueriesAt = 2 * kKeyBytes;
  static constexpr int kGradientsAt = kQueriesAt + kStages * kQueryBytes;  // d_out
  static constexpr int kScoresAt = kGradientsAt + kStages * kQueryBytes;   // dS^T, twice
  static constexpr int kRowsAt = kScoresAt + 2 * kScoreBytes;              // a stage: shifts, dots, keys seen
  static constexpr int kRowBytes = kM * 16;
  static constexpr int kBarriersAt = kRowsAt + kStages * kRowBytes;
  static constexpr int kBytes = kBarriersAt + 8 * (2 + 4 * kStages) + TileQueue::kBytes + 1024;
};

struct BackwardParams {
  CUtensorMap q, k, v, d_out, d_k, d_v;
  AttentionParams p;
  int groups = 0, key_tiles = 0, tiles = 0, together = 1;  // groups: key/value heads of all batch rows
  int padded = 0;                                          // T up to a multiple of 128
  float *shifts = nullptr, *dots = nullptr;                // [B,H,padded]: -lse / scale; -out . d_out
  int2* seen = nullptr;                                    // [B,padded]
  int2* met = nullptr;                                     // [B,key_tiles]: the queries that see some key of a tile
  float* d_q = nullptr;                                    // [B,H,padded,D] in an order of its own
  int* drawn = nullptr;
  int* bad = nullptr;  // 1: some gradient is not finite
};

// --- before: dots of out and d_out, what each query sees, which queries meet a tile; sums of d_q are 0

constexpr int kPrepareThreads = 256;

template <int kD>
__global__ void __launch_bounds__(kPrepareThreads) prepare_kernel(const __grid_constant__ BackwardParams params) {
  constexpr int kLanes = kD / 8, kRows = kPrepareThreads / kLanes;
  const AttentionParams& p = params.p;
  const int H = p.K * static_cast<int>(p.group.divisor), head = static_cast<int>(blockIdx.y), b = head / H,
            h = head % H;
  const int lane = threadIdx.x % kLanes,
            t = static_cast<int>(blockIdx.x) * kRows + static_cast<int>(threadIdx.x) / kLanes;
  if (t >= params.padded) return;
  const int64_t row = int64_t{head} * params.padded + t;
  float4* const sums = reinterpret_cast<float4*>(params.d_q + row * kD);
  sums[lane] = sums[lane + kLanes] = float4{};
  float dot = 0;
  if (t < p.T && lane * 8 < p.D) {
    const Pack<8> x = load<8>(p.out.at<const __nv_bfloat16>(b, t, h) + lane * 8);
    const Pack<8> y = load<8>(p.d_out.at<const __nv_bfloat16>(b, t, h) + lane * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) dot = fmaf(x.v[i], y.v[i], dot);
  }
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) dot += __shfl_xor_sync(kAllLanes, dot, step);
  if (lane > 0) return;
  const int2 seen = t < p.T ? p.visible(b, t) : int2{INT_MAX, 0};  // after all others
  params.dots[row] = -dot;
  params.shifts[row] = seen.x < seen.y ? -*p.lse.at(b, t, h) / p.scale : -INFINITY;
  if (h == 0) params.seen[int64_t{b} * params.padded + t] = seen;
}

// The first t of [0, T) with !before(t), which holds up to there.
template <class Before>
__device__ inline int first_not_before(int T, Before before) {
  int lo = 0, hi = T;
  while (lo < hi) {
    const int middle = (lo + hi) / 2;
    if (before(middle)) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  return lo;
}
__global__ void meet_kernel(const __grid_constant__ BackwardParams params, int all) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i == 0) *params.bad = *params.drawn = 0;
  if (i >= all) return;
  const AttentionParams& p = params.p;
  const int b = i / params.key_tiles, key = i % params.key_tiles * kN;
  // Both ends of what a query sees only grow.
  params.met[i] = {first_not_before(p.T, [&](int t) { return p.visible(b, t).y <= key; }),
                   first_not_before(p.T, [&](int t) { return p.visible(b, t).x < key + kN; })};
}

// --- the gradients of keys and values, and sums of those of queries

struct KeyTile {
  int b, kv, first;
  int begin, end;  // blocks of queries
};
template <class L>
__device__ inline KeyTile key_tile_at(const BackwardParams& params, int place) {
  const int section = params.together * params.key_tiles, s = place / section;
  const int heads = min(params.together, params.groups - s * params.together), rest = place - s * section;
  const int head = s * params.together + rest % heads, tile = rest / heads;
  KeyTile result;
  result.b = head / params.p.K, result.kv = head % params.p.K, result.first = tile * kN;
  const int2 met = params.met[result.b * params.key_tiles + tile];
  result.begin = met.x / L::kM, result.end = met.y > met.x ? (met.y + L::kM - 1) / L::kM : result.begin;
  return result;
}

template <class L>
struct BackwardShared {
  uint32_t base;
  __device__ uint32_t key(int panel, int row) const { return base + L::kKeysAt + (panel * kN + row) * kPanelRow; }
  __device__ uint32_t value(int panel, int row) const { return base + L::kValuesAt + (panel * kN + row) * kPanelRow; }
  __device__ uint32_t query(int stage, int panel) const {
    return base + L::kQueriesAt + stage * L::kQueryBytes + panel * L::kM * kPanelRow;
  }
  __device__ uint32_t gradient(int stage, int panel) const {
    return base + L::kGradientsAt + stage * L::kQueryBytes + panel * L::kM * kPanelRow;
  }
  // dS^T: a panel has 64 queries, its rows are keys.
  __device__ uint32_t score(int buffer, int panel, int key) const {
    return base + L::kScoresAt + buffer * L::kScoreBytes + (panel * kN + key) * kPanelRow;
  }
  __device__ uint32_t shifts(int stage) const { return base + L::kRowsAt + stage * L::kRowBytes; }
  __device__ uint32_t dots(int stage) const { return shifts(stage) + L::kM * 4; }
  __device__ uint32_t seen(int stage) const { return shifts(stage) + L::kM * 8; }
  __device__ uint32_t barrier(int i) const { return base + L::kBarriersAt + 8 * i; }
  __device__ uint32_t keys_full() const { return barrier(0); }
  __device__ uint32_t keys_empty() const { return barrier(1); }
  __device__ uint32_t query_full(int stage) const { return barrier(2 + stage); }
  __device__ uint32_t query_empty(int stage) const { return barrier(2 + kStages + stage); }
  __device__ uint32_t gradient_full(int stage) const { return barrier(2 + 2 * kStages + stage); }
  __device__ uint32_t gradient_empty(int stage) const { return barrier(2 + 3 * kStages + stage); }
};

template <class L>
__device__ void copy_for_backward(const BackwardParams& params, const BackwardShared<L>& shared, TileQueue& queue) {
  Ring ring;  // of queries and of gradients, which advance together
  uint32_t keys_parity = 1;
  const int G = static_cast<int>(params.p.group.divisor), H = params.p.K * G;
  queue.hand_out([&](int place) {
    const KeyTile tile = key_tile_at<L>(params, place);
    if (tile.begin == tile.end) return;
    wait(shared.keys_empty(), keys_parity);
    keys_parity ^= 1;
    arrive_expecting(shared.keys_full(), 2 * L::kKeyBytes);
    for (int panel = 0; panel < L::kPanels; ++panel) {
      load_box(shared.key(panel, 0), params.k, shared.keys_full(), panel * kPanel, tile.first, tile.kv, tile.b);
      load_box(shared.value(panel, 0), params.v, shared.keys_full(), panel * kPanel, tile.first, tile.kv, tile.b);
    }
    for (int g = 0; g < G; ++g) {
      const int h = tile.kv * G + g;
      for (int block = tile.begin; block < tile.end; ++block) {
        const int t = block * L::kM, stage = ring.stage;
        const int64_t row = (int64_t{tile.b} * H + h) * params.padded + t;
        wait(shared.query_empty(stage), ring.parity ^ 1);
        arrive_expecting(shared.query_full(stage), L::kQueryBytes + L::kM * 16);
        for (int panel = 0; panel < L::kPanels; ++panel) {
          load_box(shared.query(stage, panel), params.q, shared.query_full(stage), panel * kPanel, t, h, tile.b);
        }
        load_bytes(shared.shifts(stage), params.shifts + row, L::kM * 4, shared.query_full(stage));
        load_bytes(shared.dots(stage), params.dots + row, L::kM * 4, shared.query_full(stage));
        load_bytes(shared.seen(stage), params.seen + int64_t{tile.b} * params.padded + t, L::kM * 8,
                   shared.query_full(stage));
        wait(shared.gradient_empty(stage), ring.parity ^ 1);
        arrive_expecting(shared.gradient_full(stage), L::kQueryBytes);
        for (int panel = 0; panel < L::kPanels; ++panel) {
          load_box(shared.gradient(stage, panel), params.d_out, shared.gradient_full(stage), panel * kPanel, t, h,
                   tile.b);
        }
        ring.advance<kStages>();
      }
    }
  });
}

__device__ inline float2 read_pair(uint32_t address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
  return pair;
}
__device__ inline int4 read_four(uint32_t address) {  // where it stands: ahead, too many registers would be taken
  int4 four;
  asm volatile("ld.volatile.shared.v4.s32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
               : "r"(address)
               : "memory");
  return four;
}
__device__ inline void add_in_memory(float* to, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

// Registers of a thread of the warpgroup that has keys 64 half to 64 half + 63 of the tile: scores[4 n + 2 i + e] is of
// key row(i) and query 8 n + 2 (l % 4) + e; see product_abt.
template <class L>
struct BackwardComputer {
  static constexpr int kM = L::kM, kD = L::kD;
  const BackwardParams& params;
  const BackwardShared<L>& shared;
  const int half, lane, warp;
  Ring ring;
  uint32_t keys_parity = 0;
  int buffer = 0;
  float d_keys[kD / 2], d_values[kD / 2];

  __device__ __forceinline__ int row(int i) const { return half * kHalf + warp * 16 + i * 8 + lane / 4; }

  // Sums of products begin with what stands at `from` for each query. (While products are under way the compiler would
  // wait for them before it fills other registers of theirs.)
  __device__ __forceinline__ void start(float (&c)[kM / 2], uint32_t from) {
#pragma unroll
    for (int n = 0; n < kM / 8; ++n) {
      const float2 pair = read_pair(from + (8 * n + lane % 4 * 2) * 4);
      c[4 * n] = c[4 * n + 2] = pair.x, c[4 * n + 1] = c[4 * n + 3] = pair.y;
    }
    pin(c);
  }
  // c += (keys or values) (queries or gradients)^T
  template <class Left, class Right>
  __device__ __forceinline__ void multiply_scores(float (&c)[kM / 2], Left left, Right right) {
    pin(c);
    begin_products();
#pragma unroll
    for (int k = 0; k < kD / 16; ++k) {
      product_abt<kM>(c, panel_along_k(left(k / 4)) + k % 4 * kNextK, panel_along_k(right(k / 4)) + k % 4 * kNextK,
                      true);
    }
    end_products();
    pin(c);
  }
  // c += a (queries or gradients), the sum over queries
  __device__ __forceinline__ void add_product(float (&c)[kD / 2], const uint32_t (&a)[kM / 4], uint32_t right) {
    pin(c);
    begin_products();
#pragma unroll
    for (int k = 0; k < kM / 16; ++k) {
      product_ab<kD>(c, a + 4 * k, panel_across_k(right, kM * kPanelRow) + k * kNextAcross);
    }
    end_products();
    pin(c);
  }

  __device__ __forceinline__ void to_weights(float (&s)[kM / 2], int first_key) {
    const int4 first = read_four(shared.seen(ring.stage)), last = read_four(shared.seen(ring.stage) + (kM - 2) * 8);
    const int from = first_key + half * kHalf;
    const bool all_see = last.z <= from && first.y >= from + kHalf;
#pragma unroll
    for (float& x : s) x = exp2_fast(x * params.p.factor);
    if (all_see) return;
#pragma unroll
    for (int n = 0; n < kM / 8; ++n) {
      const int4 seen = read_four(shared.seen(ring.stage) + (8 * n + lane % 4 * 2) * 8);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = first_key + row(i);
        float &x = s[4 * n + 2 * i], &y = s[4 * n + 2 * i + 1];
        x = key >= seen.x && key < seen.y ? x : 0.0f;
        y = key >= seen.z && key < seen.w ? y : 0.0f;
      }
    }
  }
  // d becomes the gradient of scale * s: 0 where the weight is.
  __device__ __forceinline__ void to_gradients(const float (&s)[kM / 2], float (&d)[kM / 2]) {
#pragma unroll
    for (int i = 0; i < kM / 2; ++i) d[i] *= s[i];
  }
  __device__ __forceinline__ void pack(uint32_t (&to)[kM / 4], const float (&from)[kM / 2]) {
#pragma unroll
    for (int i = 0; i < kM / 4; ++i) to[i] = pack_pair<__nv_bfloat16>(from[2 * i], from[2 * i + 1]);
  }
  __device__ __forceinline__ void share(const uint32_t (&packed)[kM / 4]) {
#pragma unroll
    for (int n = 0; n < kM / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = row(i);
        const uint32_t to = shared.score(buffer, n / 8, 0) + swizzled<kPanelRow>(key, n % 8) + lane % 4 * 4;
        asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(to), "r"(packed[2 * n + i]) : "memory");
      }
    }
  }
  // The part of d_q of this warpgroup: half of the columns where kD is 128, half of the queries where kM is.
  __device__ __forceinline__ void multiply_queries(float (&c)[32]) {
    const uint32_t left = shared.score(buffer, kM == 128 ? half : 0, 0), right = shared.key(kD == 128 ? half : 0, 0);
    pin(c);
    begin_products();
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
      product_atb(c, panel_across_k(left, 0) + k * kNextAcross, panel_across_k(right, 0) + k * kNextAcross, k > 0);
    }
    end_products();
    pin(c);
  }
  __device__ __forceinline__ void add_queries(const float (&c)[32], int64_t block) {
    float* const to = params.d_q + block * (kM * kD) + half * (kM * kD / 2) + (warp * kWarp + lane) * 4;
#pragma unroll
    for (int n = 0; n < 8; ++n)
      add_in_memory(to + n * 4 * kWarpgroup, c[4 * n], c[4 * n + 1], c[4 * n + 2], c[4 * n + 3]);
  }

  __device__ __forceinline__ void meet_queries(const KeyTile& tile, int64_t block) {
    float s[kM / 2], d[kM / 2];
    uint32_t weights[kM / 4], gradients[kM / 4];
    const int stage = ring.stage;
    wait(shared.query_full(stage), ring.parity);
    start(s, shared.shifts(stage));
    start(d, shared.dots(stage));
    multiply_scores(
        s, [&](int panel) { return shared.key(panel, half * kHalf); },
        [&](int panel) { return shared.query(stage, panel); });
    wait(shared.gradient_full(stage), ring.parity);
    multiply_scores(
        d, [&](int panel) { return shared.value(panel, half * kHalf); },
        [&](int panel) { return shared.gradient(stage, panel); });
    wait_for_products<1>();
    pin(s);
    to_weights(s, tile.first);
    if constexpr (kD == 128) {  // there are registers for both
      pack(weights, s);
      add_product(d_values, weights, shared.gradient(stage, 0));
      wait_for_products<1>();
      pin(d);
      to_gradients(s, d);
    } else {
      wait_for_products<0>();
      pin(d);
      to_gradients(s, d);
      pack(weights, s);
      add_product(d_values, weights, shared.gradient(stage, 0));
    }
    pack(gradients, d);
    share(gradients);
    publish_shared();
    meet(1, kComputers);
    float d_queries[32];
    multiply_queries(d_queries);
    add_product(d_keys, gradients, shared.query(stage, 0));
    wait_for_products<1>();
    pin(d_values);
    pin(d_queries);
    arrive_as_warp(shared.gradient_empty(stage));
    add_queries(d_queries, block);
    wait_for_products<0>();
    pin(d_keys);
    arrive_as_warp(shared.query_empty(stage));
    ring.advance<kStages>();
    buffer ^= 1;
  }

  __device__ __forceinline__ void put(uint32_t place, const float (&sums)[kD / 2], float factor, float& probe) {
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float x = sums[4 * n + 2 * i], y = sums[4 * n + 2 * i + 1];
        probe = fmaf(x, 0.0f, fmaf(y, 0.0f, probe));
        const uint32_t to = place + n / 8 * kN * kPanelRow + swizzled<kPanelRow>(row(i), n % 8) + lane % 4 * 4;
        asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(to), "r"(pack_pair<__nv_bfloat16>(x * factor, y * factor))
                     : "memory");
      }
    }
  }
  __device__ __forceinline__ void write_keys(const KeyTile& tile) {
    float probe = 0;
    put(shared.key(0, 0), d_keys, params.p.scale, probe);
    put(shared.value(0, 0), d_values, 1.0f, probe);
    if (probe != 0) *params.bad = 1;
    publish_shared();
    meet(2 + half, kWarpgroup);
    if (warp != 0 || lane != 0) return;
    for (int panel = 0; panel < L::kPanels; ++panel) {
      const int first = tile.first + half * kHalf;
      if (first >= params.p.S) break;
      store_box(params.d_k, shared.key(panel, half * kHalf), panel * kPanel, first, tile.kv, tile.b);
      store_box(params.d_v, shared.value(panel, half * kHalf), panel * kPanel, first, tile.kv, tile.b);
    }
    wait_for_stores();
  }

  // Shared memory may have the next tile's keys by now.
  __device__ __forceinline__ void write_nothing(const KeyTile& tile) {
    const int chunks = params.p.D / 8;
    for (int i = warp * kWarp + lane; i < kHalf * chunks; i += kWarpgroup) {
      const int key = tile.first + half * kHalf + i / chunks, d = i % chunks * 8;
      if (key >= params.p.S) return;
      *reinterpret_cast<uint4*>(params.p.d_k.at<__nv_bfloat16>(tile.b, key, tile.kv) + d) = uint4{};
      *reinterpret_cast<uint4*>(params.p.d_v.at<__nv_bfloat16>(tile.b, key, tile.kv) + d) = uint4{};
    }
  }

  __device__ __forceinline__ void compute_tile(const KeyTile& tile) {
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) d_keys[i] = d_values[i] = 0;
    const bool some = tile.begin < tile.end;
    const int G = static_cast<int>(params.p.group.divisor), H = params.p.K * G, blocks = params.padded / kM;
    if (some) {
      wait(shared.keys_full(), keys_parity);
      keys_parity ^= 1;
      for (int g = 0; g < G; ++g) {
        const int64_t head = int64_t{tile.b} * H + tile.kv * G + g;
#pragma unroll 1
        for (int block = tile.begin; block < tile.end; ++block) meet_queries(tile, head * blocks + block);
      }
    }
    if (!some) return write_nothing(tile);
    meet(1, kComputers);  // neither reads keys any more
    write_keys(tile);
    if (warp == 0 && lane == 0) arrive(shared.keys_empty());
  }
};

template <class L>
__global__ void __launch_bounds__(kThreads, 1) backward_kernel(const __grid_constant__ BackwardParams params) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const BackwardShared<L> shared{(shared_address(memory) + 1023) & ~1023u};
  TileQueue queue{shared.barrier(2 + 4 * kStages), params.drawn, params.tiles};
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&params.q, &params.k, &params.v, &params.d_out, &params.d_k, &params.d_v})
      fetch_tensor_map(*map);
    constexpr int kWarps = kComputers / kWarp;
    init_barrier(shared.keys_full(), 1), init_barrier(shared.keys_empty(), 2);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(shared.query_full(stage), 1), init_barrier(shared.query_empty(stage), kWarps);
      init_barrier(shared.gradient_full(stage), 1), init_barrier(shared.gradient_empty(stage), kWarps);
    }
    queue.init(kWarps);
    publish_barriers();
  }
  __syncthreads();
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;\n");
    if (threadIdx.x == 0) copy_for_backward<L>(params, shared, queue);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;\n");
    BackwardComputer<L> computer{params, shared, group - 1, static_cast<int>(threadIdx.x) % kWarp,
                                 static_cast<int>(threadIdx.x) / kWarp % 4};
    for (int place; (place = queue.take()) >= 0;) {
      computer.compute_tile(key_tile_at<L>(params, place));
    }
  }
#endif
}

// --- after: sums of d_q are rounded and put in order

template <class L>
__global__ void __launch_bounds__(kComputers) round_queries_kernel(const __grid_constant__ BackwardParams params) {
  constexpr int kPitch = kPanel + 8;
  __shared__ __align__(16) __nv_bfloat16 tile[2][64][kPitch];
  const AttentionParams& p = params.p;
  const int H = p.K * static_cast<int>(p.group.divisor), head = static_cast<int>(blockIdx.y), b = head / H,
            h = head % H;
  const int half = static_cast<int>(threadIdx.x) / kWarpgroup, thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int lane = thread % kWarp, warp = thread / kWarp, first = static_cast<int>(blockIdx.x) * L::kM;
  const float* const from = params.d_q + (int64_t{head} * params.padded + first) * L::kD + half * (L::kM * L::kD / 2);
  float probe = 0;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float4 x = *reinterpret_cast<const float4*>(from + n * 4 * kWarpgroup + thread * 4);
    probe = fmaf(x.x, 0.0f, fmaf(x.y, 0.0f, fmaf(x.z, 0.0f, fmaf(x.w, 0.0f, probe))));
    const int row = warp * 16 + lane / 4, col = 8 * n + lane % 4 * 2;
    *reinterpret_cast<uint32_t*>(&tile[half][row][col]) = pack_pair<__nv_bfloat16>(x.x * p.scale, x.y * p.scale);
    *reinterpret_cast<uint32_t*>(&tile[half][row + 8][col]) = pack_pair<__nv_bfloat16>(x.z * p.scale, x.w * p.scale);
  }
  if (probe != 0) *params.bad = 1;
  __syncthreads();
  constexpr int kChunks = L::kD / 8;
  for (int i = static_cast<int>(threadIdx.x); i < L::kM * kChunks; i += kComputers) {
    const int row = i / kChunks, d = i % kChunks * 8, t = first + row;
    if (t >= p.T || d >= p.D) continue;
    const int part = L::kD == 128 ? d / 64 : row / 64;
    *reinterpret_cast<uint4*>(p.d_q.at<__nv_bfloat16>(b, t, h) + d) =
        *reinterpret_cast<const uint4*>(&tile[part][row % 64][d % 64]);
  }
}

template <class L>
bool launch(const ExecContext& ctx, const AttentionBwdArgs& a, const AttentionParams& p, int* bad) {
  BackwardParams params{{}, {}, {}, {}, {}, {}, p};
  const bool maps = ctx.arena->sparse() || (make_map(params.q, a.q, L::kM) && make_map(params.k, a.k, kN) &&
                                            make_map(params.v, a.v, kN) && make_map(params.d_out, a.d_out, L::kM) &&
                                            make_map(params.d_k, a.d_k, kHalf) && make_map(params.d_v, a.d_v, kHalf));
  if (!maps || !p.out.wide || !p.d_out.wide || !p.d_q.wide || !p.d_k.wide || !p.d_v.wide) return false;
  const int64_t B = a.q.dim(0), H = a.q.dim(2), padded = ceil_div(a.q.dim(1), 128) * 128;
  params.groups = static_cast<int>(B * p.K), params.key_tiles = static_cast<int>(ceil_div(a.k.dim(1), kN));
  params.tiles = params.groups * params.key_tiles, params.padded = static_cast<int>(padded);
  params.together = heads_together(params.groups, 1, padded * L::kD * 8 * static_cast<int64_t>(p.group.divisor));
  const Tensor rows = ctx.empty(Shape{2 * B * H * padded}, DType::f32, MemoryKind::workspace);
  const Tensor marks = ctx.empty(Shape{2 * B * (padded + params.key_tiles) + 1}, DType::i32, MemoryKind::workspace);
  const Tensor sums = ctx.empty(Shape{B * H * padded * L::kD}, DType::f32, MemoryKind::workspace);
  if (ctx.arena->sparse()) return true;
  params.shifts = rows.data<float>(), params.dots = params.shifts + B * H * padded;
  params.seen = reinterpret_cast<int2*>(marks.data<int32_t>()), params.met = params.seen + B * padded;
  params.drawn = reinterpret_cast<int*>(params.met + B * params.key_tiles);
  params.bad = bad;
  params.d_q = sums.data<float>();

  const cudaStream_t stream = stream_of(ctx.stream);
  const auto heads = static_cast<unsigned>(B * H);
  const int all = static_cast<int>(B) * params.key_tiles;
  meet_kernel<<<static_cast<unsigned>(ceil_div(all, 128)), 128, 0, stream>>>(params, all);
  const int64_t rows_of_block = kPrepareThreads / (L::kD / 8);
  prepare_kernel<L::kD>
      <<<dim3(static_cast<unsigned>(ceil_div(padded, rows_of_block)), heads), kPrepareThreads, 0, stream>>>(params);
  LOAM_CUDA(cudaFuncSetAttribute(backward_kernel<L>, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes));
  const int blocks = std::min(params.tiles, hopper_multiprocessors());
  backward_kernel<L><<<static_cast<unsigned>(blocks), kThreads, L::kBytes, stream>>>(params);
  round_queries_kernel<L><<<dim3(static_cast<unsigned>(padded / L::kM), heads), kComputers, 0, stream>>>(params);
  launched("attention_bwd");
  return true;
}

}  // namespace

bool hopper_attention_bwd(const ExecContext& ctx, const AttentionBwdArgs& a, const AttentionParams& params, int* bad) {
  const bool takes = ctx.numerics == Numerics::fast && a.q.dtype == DType::bf16 && a.q.dim(3) <= 128 && params.plain &&
                     !params.drops && a.k.dim(1) > 0 && a.q.dim(0) * a.q.dim(2) <= 65535 &&
                     !(a.accumulate_q || a.accumulate_k || a.accumulate_v);
  // Memory is counted for a GPU that is not there, too.
  const bool hopper = cuda::count() == 0 ? ctx.arena->sparse() : hopper_multiprocessors() > 0;
  if (!takes || !hopper) return false;
  return a.q.dim(3) <= 64 ? launch<BackwardLayout<64>>(ctx, a, params, bad)
                          : launch<BackwardLayout<128>>(ctx, a, params, bad);
}

}  // namespace loam::cuda
