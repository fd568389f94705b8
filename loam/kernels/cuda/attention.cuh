// What the kernels of attention share: their parameters, which keys a query sees, tiles of rows, and how a score
// becomes a logit. Legend as in loam/kernels/attention.h; G = H/K query heads share a key/value head.
//
// The queries of one key/value head are rows r = t G + g, position by position, so that a tile of rows meets each key
// once for all heads of the group, and both ends of what a row sees only grow with r.
#pragma once

#include <algorithm>
#include <climits>
#include <cmath>

#include "loam/kernels/attention.h"
#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/tile/mma.cuh"
#include "loam/kernels/dropout.h"

namespace loam::cuda {

inline constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

// n / divisor for 0 <= n < 2^31 by a multiplication (Granlund and Montgomery 1994).
struct Divisor {
  uint32_t divisor = 1, factor = 0;
  int shift = 0;

  Divisor() = default;
  explicit Divisor(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    int bits = 0;
    while ((int64_t{1} << bits) < d) ++bits;
    shift = bits - 1;
    factor = bits == 0 ? 0 : static_cast<uint32_t>((uint64_t{1} << (31 + bits)) / divisor + 1);
  }
  __device__ int quotient(int n) const {
    return divisor == 1 ? n : static_cast<int>(__umulhi(static_cast<uint32_t>(n), factor) >> shift);
  }
};

// A [B,length,heads,D] view.
struct HeadsView {
  void* data = nullptr;
  int64_t batch = 0, position = 0, head = 0;  // strides in elements
  bool wide = false;                          // every row is at a multiple of 16 bytes

  HeadsView() = default;
  explicit HeadsView(const View& v)
      : data(v.data), batch(v.stride(0)), position(v.stride(1)), head(v.stride(2)), wide(true) {
    const int64_t size = dtype_size(v.dtype);
    wide = reinterpret_cast<uintptr_t>(data) % kChunk == 0;
    for (int axis = 0; axis < 3; ++axis) wide = wide && (v.dim(axis) <= 1 || v.stride(axis) * size % kChunk == 0);
  }
  template <class T>
  __device__ T* at(int b, int64_t t, int64_t h) const {
    return static_cast<T*>(data) + b * batch + t * position + h * head;
  }
};

// A [B,H,T] view of f32, or absent.
struct StatisticView {
  float* data = nullptr;
  int64_t batch = 0, head = 0, position = 0;

  StatisticView() = default;
  explicit StatisticView(const View& v) {
    if (v) *this = StatisticView(v.ptr<float>(), v.stride(0), v.stride(1), v.stride(2));
  }
  StatisticView(float* p, int64_t b, int64_t h, int64_t t) : data(p), batch(b), head(h), position(t) {}
  __device__ float* at(int b, int t, int h) const { return data + b * batch + h * head + t * position; }
};

// What a kernel knows of one row.
struct alignas(32) Query {
  float lse2 = 0;          // lse / ln 2; +inf if the row sees no key, so that its weights are 0
  float dot = 0;           // out . d_out
  int begin = 0, end = 0;  // the keys it sees
  int position = 0;        // among the keys
  float slope = 0;         // of ALiBi
  uint32_t draw = 0;       // h T + t, which names it in dropout
  uint32_t padding = 0;    // read along with the others
  __device__ bool sees(int key) const { return key >= begin && key < end; }
};

struct AttentionParams {
  HeadsView q, k, v, out, d_out, d_q, d_k, d_v;
  StatisticView lse, max_logit;
  int T = 0, S = 0, K = 0, D = 0, rows = 0;  // rows = T G
  Divisor group;
  bool causal = true;
  int window = 0;
  const int32_t *first_key = nullptr, *key_count = nullptr;
  int64_t first_key_batch = 0, first_key_position = 0, key_count_batch = 0;
  bool plain = true;            // the logit is scale times the score, and scale > 0
  float scale = 1, factor = 1;  // factor: from a score (plain) or a logit in units of ln 2 to the latter
  float softcap = 0, softcap_inverse = 0;
  const float* slopes = nullptr;
  int64_t slopes_stride = 0;
  bool drops = false;
  uint64_t drop_key = 0;
  uint32_t drop_bound = 0;
  float kept = 1;  // what dropout multiplies the weights with that it keeps
  const StepState* step = nullptr;
  Query* queries = nullptr;  // [B,K,rows], backward's
  bool accumulate_q = false, accumulate_k = false, accumulate_v = false;
  const int* only_if = nullptr;  // backward's kernels do nothing where it is there and 0

  template <class Args>
  AttentionParams(const ExecContext& ctx, const Args& a) : q(a.q), k(a.k), v(a.v), out(a.out), lse(a.lse) {
    const int64_t group_size = a.k.dim(2) > 0 ? a.q.dim(2) / a.k.dim(2) : 1;
    LOAM_CHECK(a.q.dim(1) * group_size <= INT_MAX / 2 && a.k.dim(1) <= INT_MAX / 2, "attention: {} queries, {} keys",
               a.q.dim(1), a.k.dim(1));
    LOAM_CHECK(a.q.dim(3) % 8 == 0 && a.q.dim(3) <= 256, "attention: a head dim of {}", a.q.dim(3));
    T = static_cast<int>(a.q.dim(1)), S = static_cast<int>(a.k.dim(1)), K = static_cast<int>(a.k.dim(2));
    D = static_cast<int>(a.q.dim(3)), rows = static_cast<int>(T * group_size);
    group = Divisor(std::max<int64_t>(1, group_size));
    causal = a.mask.causal, window = static_cast<int>(std::min<int64_t>(a.mask.window, INT_MAX / 2));
    if (a.mask.first_key) {
      first_key = a.mask.first_key.template ptr<int32_t>();
      first_key_batch = a.mask.first_key.stride(0), first_key_position = a.mask.first_key.stride(1);
    }
    if (a.mask.key_count) {
      key_count = a.mask.key_count.template ptr<int32_t>(), key_count_batch = a.mask.key_count.stride(0);
    }
    scale = a.logits.scale, softcap = a.logits.softcap;
    softcap_inverse = softcap > 0 ? 1 / softcap : 0;
    if (a.logits.slopes) slopes = a.logits.slopes.template ptr<float>(), slopes_stride = a.logits.slopes.stride(0);
    plain = !(softcap > 0) && !slopes && scale > 0 && std::isfinite(scale);
    factor = plain ? scale * kLog2e : 1.0f;
    drops = a.dropout.probability > 0;
    drop_key = dropout_key(ctx, a.dropout.site), drop_bound = dropout_bound(a.dropout.probability);
    kept = 1 / (1 - a.dropout.probability);
    step = ctx.step;
  }

  __device__ bool idle() const { return only_if && *only_if == 0; }
  // Of a head of the group, the row's position and query head.
  __device__ int position_of(int row) const { return group.quotient(row); }
  __device__ int head_of(int kv, int row) const {
    return kv * static_cast<int>(group.divisor) + row - position_of(row) * static_cast<int>(group.divisor);
  }
  template <class Element>
  __device__ Element* row_of(const HeadsView& view, int b, int kv, int row) const {
    const int t = position_of(row), g = row - t * static_cast<int>(group.divisor);
    return view.at<Element>(b, t, int64_t{kv} * group.divisor + g);
  }
  __device__ int keys(int b) const { return key_count ? key_count[b * key_count_batch] : S; }
  // The first and one past the last of the keys that position t sees; none if first >= last.
  __device__ int2 visible(int b, int t) const {
    const int position = t + keys(b) - T;
    int2 range = {0, min(S, keys(b))};
    if (first_key) range.x = max(0, first_key[b * first_key_batch + t * first_key_position]);
    if (causal) range.y = min(range.y, position + 1);
    if (window > 0) range.x = max(range.x, position - window + 1);
    return range;
  }
  __device__ Query query(int b, int kv, int row) const {
    Query query;
    if (row >= rows) return query;
    const int t = position_of(row), h = head_of(kv, row);
    const int2 range = visible(b, t);
    query.begin = range.x, query.end = range.y;
    query.position = t + keys(b) - T;
    query.slope = slopes ? slopes[h * slopes_stride] : 0.0f;
    query.draw = static_cast<uint32_t>(h) * static_cast<uint32_t>(T) + static_cast<uint32_t>(t);
    return query;
  }
  // The numbers that decide which weights of a row of the batch are dropped.
  __device__ PhiloxStream draws(int b) const {
    return {drop_key, static_cast<uint64_t>((step ? step->first_sample : 0) + b)};
  }
};

__device__ inline float exp2_fast(float x) {  // a relative error of 2^-22; 0 below -126
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A score becomes a logit in units of ln 2. `cap_slope` gets 1 - tanh^2, by which the cap shrinks a gradient.
template <bool kCap, class T>
__device__ inline float logit(const AttentionParams& p, const Query& query, int key, float score, float& cap_slope) {
  float x = score * p.scale;
  if constexpr (kCap) {
    x *= p.softcap_inverse;
    x = sizeof(T) == 4 ? tanhf(x) : 1 - __fdividef(2.0f, exp2_fast(2 * kLog2e * x) + 1);
    cap_slope = 1 - x * x;
    x *= p.softcap;
  }
  return (x + query.slope * static_cast<float>(key - query.position)) * kLog2e;
}

// Copies rows first to first + kRows of a matrix, `at(row)` being the address of one, to a tile with rows of kD
// elements; zeros for rows outside of [lo, hi) and for elements from D on. The copies are under way on return.
template <int kRows, int kD, int kThreads, class T, class At>
__device__ inline void load_tile(T* tile, int D, bool wide, int first, int lo, int hi, At at) {
  constexpr int kPer = kChunk / static_cast<int>(sizeof(T)), kChunks = kD / kPer, kStep = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kRows % kStep == 0);
  const int c = threadIdx.x % kChunks, r0 = threadIdx.x / kChunks;
  if (c * kPer >= D) hi = lo;
  if (wide) {
    const uint32_t to = shared_address(tile);
#pragma unroll
    for (int r = 0; r < kRows; r += kStep) {
      const int row = first + r0 + r;
      copy_chunk_async(to + swizzled<kD* static_cast<int>(sizeof(T))>(r0 + r, c), at(row) + c * kPer,
                       row >= lo && row < hi);
    }
    return;
  }
#pragma unroll 1
  for (int r = r0; r < kRows; r += kStep) {
    Raw<T, kPer> chunk = {};
    if (first + r >= lo && first + r < hi) {
      const T* from = at(first + r) + c * kPer;
#pragma unroll
      for (int k = 0; k < kPer; ++k) chunk.v[k] = from[k];
    }
    *reinterpret_cast<Raw<T, kPer>*>(tile_at<kD>(tile, r, c * kPer)) = chunk;
  }
}

// Writes rows [first, min(first + kRows, hi)) from a tile.
template <int kRows, int kD, int kThreads, class T, class At>
__device__ inline void store_tile(T* tile, int D, bool wide, int first, int hi, At at) {
  constexpr int kPer = kChunk / static_cast<int>(sizeof(T)), kChunks = kD / kPer;
#pragma unroll 2
  for (int i = threadIdx.x; i < kRows * kChunks; i += kThreads) {
    const int r = i / kChunks, c = i % kChunks;
    if (c * kPer >= D || first + r >= hi) continue;
    const auto chunk = *reinterpret_cast<const Raw<T, kPer>*>(tile_at<kD>(tile, r, c * kPer));
    T* to = at(first + r) + c * kPer;
    if (wide) {
      *reinterpret_cast<Raw<T, kPer>*>(to) = chunk;
    } else {
#pragma unroll
      for (int k = 0; k < kPer; ++k) to[k] = chunk.v[k];
    }
  }
}

// Rows that do not see a key have weight 0 on it, and 0 times NaN or infinity would still spread. A block whose sums
// are not finite therefore does its work again, now with such numbers set to 0 in the tiles that are summed over
// (clean_tile) and added afterwards where they are seen (add_seen). Other rows keep their bits.
template <int kRows, int kD, int kThreads, class T>
__device__ inline bool clean_tile(T* tile) {
  bool found = false;
#pragma unroll 1
  for (int i = threadIdx.x; i < kRows * kD; i += kThreads) {
    if (isfinite(to_float(tile[i]))) continue;
    tile[i] = T(0.0f);
    found = true;
  }
  return found;
}
// `at(r)`: the address of row r of the tile, or null; `sees(i, r)`: whether the thread's row i of the sums sees it.
template <class L, class At, class Sees>
__device__ inline void add_seen(float (&sums)[L::kR][L::kDc], int D, At at, Sees sees) {
#pragma unroll 1
  for (int r = 0; r < L::kN; ++r) {
    const auto* from = at(r);
    if (!from) continue;
    bool seen[L::kR];
#pragma unroll
    for (int i = 0; i < L::kR; ++i) seen[i] = sees(i, r);
#pragma unroll
    for (int j = 0; j < L::kDc; ++j) {
      const float x = L::col(j) < D ? to_float(from[L::col(j)]) : 0.0f;
      if (isfinite(x)) continue;
#pragma unroll
      for (int i = 0; i < L::kR; ++i) sums[i][j] += seen[i] ? x : 0.0f;
    }
  }
}
template <int kR, int kC>
__device__ inline bool all_finite(const float (&x)[kR][kC]) {
  float probe = 0;
#pragma unroll
  for (int i = 0; i < kR; ++i) {
#pragma unroll
    for (int j = 0; j < kC; ++j) probe = fmaf(x[i][j], 0.0f, probe);
  }
  return probe == 0;
}
template <int kR, int kC>
__device__ inline void clear(float (&x)[kR][kC]) {
#pragma unroll
  for (int i = 0; i < kR; ++i) {
#pragma unroll
    for (int j = 0; j < kC; ++j) x[i][j] = 0;
  }
}

// Writes the sums of a block, times `factor`, to rows [first, min(first + kM, hi)), or adds them to what is there. They
// pass through a tile, so that whole chunks are written. REQUIRES: no thread reads the tile any more.
template <class L, class At>
__device__ inline void write_sums(float (&sums)[L::kR][L::kDc], float factor, bool add, typename L::Element* tile,
                                  int D, bool wide, int first, int hi, At at) {
  using T = typename L::Element;
#pragma unroll
  for (int i = 0; i < L::kR; ++i) {
    const int row = L::row(i);
    const T* old = add && first + row < hi ? at(first + row) : nullptr;
#pragma unroll
    for (int j = 0; j < L::kDc; ++j) {
      const float before = old && L::col(j) < D ? to_float(old[L::col(j)]) : 0.0f;
      *tile_at<L::kD>(tile, row, L::col(j)) = from_float<T>(__fmul_rn(sums[i][j], factor) + before);
    }
  }
  __syncthreads();
  store_tile<L::kM, L::kD, L::kThreads>(tile, D, wide, first, hi, at);
}

// The first t of [0, count) that is not `before`, which holds up to there; `count` if there is none. For a whole block.
template <int kThreads, class Before>
__device__ inline int first_not(int count, Before before) {
  int lo = 0, hi = count;
  while (lo < hi) {
    const int step = (hi - lo + kThreads - 1) / kThreads, at = lo + static_cast<int>(threadIdx.x) * step;
    const int n = __syncthreads_count(at < hi && before(at));
    hi = min(hi, lo + n * step);
    if (n > 0) lo += (n - 1) * step + 1;
  }
  return lo;
}

// Calls f(std::integral_constant<int, W>{}) with the class W of head dims that D belongs to.
template <class F>
void for_head_dim(int D, F&& f) {
  if (D <= 64) return f(std::integral_constant<int, 64>{});
  if (D <= 128) return f(std::integral_constant<int, 128>{});
  f(std::integral_constant<int, 256>{});
}

// Launches `blocks` blocks of a kernel for layout L.
template <class L>
void launch_attention(const ExecContext& ctx, void (*kernel)(AttentionParams), int64_t blocks, int shared_bytes,
                      const AttentionParams& params, const char* name) {
  if (blocks == 0) return;
  LOAM_CHECK(blocks <= INT_MAX, "{}: {} blocks", name, blocks);
  LOAM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  kernel<<<static_cast<unsigned>(blocks), L::kThreads, static_cast<size_t>(shared_bytes), stream_of(ctx.stream)>>>(
      params);
  launched(name);
}

}  // namespace loam::cuda
