// Softmax statistics, losses and gradients over rows of logits. Legend: N rows, V columns.
//
// A block has one row (or, where rows do not have to be summed, a part of one), and reads it by packs that start at
// multiples of 16 bytes, whatever the row's own place: its first and last pack may be cut. Statistics are taken in one
// pass with a maximum that grows (Milakov and Gimelshein 2018), each thread for the columns it meets, then joined; a
// gradient is written in a second pass, over what the L2 cache still holds.
#include "loam/kernels/cross_entropy.h"

#include <limits>

#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/register.h"
#include "loam/tensor/view.h"

namespace loam::cuda {
namespace {

constexpr int kMostThreads = 512, kInFlight = 4;  // packs
template <class T>
constexpr int kPack = 16 / sizeof(T);

template <class T>
__device__ T* row_of(void* data, int64_t stride) {
  return static_cast<T*>(data) + blockIdx.x * stride;
}

// Elements [at, at + W) of a row, W of kPack; those outside of the row are -inf, the logit of nothing.
template <class T>
__device__ Pack<kPack<T>> load_part(const T* row, int at, int cols) {
  if (at >= 0 && at + kPack<T> <= cols) return load<kPack<T>>(row + at);
  Pack<kPack<T>> pack;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    pack.v[i] = at + i >= 0 && at + i < cols ? to_float(row[at + i]) : -INFINITY;
  }
  return pack;
}
template <class T>
__device__ void store_part(T* row, int at, int cols, const Pack<kPack<T>>& pack) {
  if (at >= 0 && at + kPack<T> <= cols) return store(row + at, pack);
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    if (at + i >= 0 && at + i < cols) row[at + i] = from_float<T>(pack.v[i]);
  }
}

// f(packs, at, step): the u-th of kInFlight packs begins at column at + u * step, which may lie outside of the row.
template <class T, class F>
__device__ void for_packs(const T* row, int cols, F&& f) {
  const int before = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
  const int step = static_cast<int>(gridDim.y * blockDim.x) * kPack<T>;
  for (int at = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kPack<T> - before; at < cols;
       at += kInFlight * step) {
    Pack<kPack<T>> packs[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) packs[u] = load_part(row, at + u * step, cols);
    f(packs, at, step);
  }
}
// row[c] <- f(c, row[c]) for every column c.
template <class T, class F>
__device__ void update_row(T* row, int cols, F&& f) {
  for_packs(row, cols, [&](Pack<kPack<T>>(&packs)[kInFlight], int at, int step) {
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) packs[u].v[i] = f(at + u * step + i, packs[u].v[i]);
      store_part(row, at + u * step, cols, packs[u]);
    }
  });
}

// Of some logits: sum = sum exp(l - max), dot = sum exp(l - max) (l - max). Numbers of a thread are f32, of a row f64.
template <class Number>
struct Stats {
  float max = -INFINITY;
  Number sum = 0, dot = 0;

  // The same sums from a maximum that is at least as large.
  __device__ void shift_to(float larger) {
    if (larger > max && sum != 0) {
      const Number shift = static_cast<Number>(max) - larger, factor = exp(shift);
      dot = factor == 0 ? 0 : (dot + sum * shift) * factor;
      sum *= factor;
    }
    max = larger;
  }
};

// fmaxf passes over NaN; the sum of exponentials meets every logit and becomes NaN.
template <bool kDot, class T>
__device__ void take_packs(const Pack<kPack<T>> (&packs)[kInFlight], Stats<float>& stats) {
  float most = stats.max;
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) most = fmaxf(most, packs[u].v[i]);
  }
  stats.shift_to(most);
  const float m = most == -INFINITY ? 0 : most;  // -inf - -inf is NaN
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    float sum = 0, dot = 0;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const float shifted = packs[u].v[i] - m, e = expf(shifted);
      sum += e;
      if constexpr (kDot) dot = fmaf(e, shifted < -200 ? -200 : shifted, dot);  // 0 * -inf is NaN
    }
    stats.sum += sum;
    if constexpr (kDot) stats.dot += dot;
  }
}

__device__ double block_total(double x, double* scratch) {
  const int lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  if (lane == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = lane < warps ? scratch[lane] : 0;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// Of a whole row, by a whole block; the same in every thread.
template <bool kDot, class T>
__device__ Stats<double> row_stats(const T* row, int cols) {
  __shared__ float maxima[kWarp];
  __shared__ double sums[kWarp], dots[kWarp];
  Stats<float> mine;
  for_packs(row, cols, [&](Pack<kPack<T>>(&packs)[kInFlight], int, int) { take_packs<kDot, T>(packs, mine); });
  const float most = block_max(mine.max, maxima);
  mine.shift_to(most);
  Stats<double> all;
  all.max = most;
  all.sum = block_total(mine.sum, sums);
  if constexpr (kDot) all.dot = block_total(mine.dot, dots);
  return all;
}

// factor * exp(l - lse), and `at_target` more at the target (-1: nowhere), times the slope of the cap.
struct Gradient {
  float lse, factor, at_target, inverse_cap;  // inverse_cap 0: no cap
  int target;
  __device__ float operator()(int c, float l) const {
    float gradient = factor * expf(l - lse);
    if (c == target) gradient += at_target;
    const float t = l * inverse_cap;
    return inverse_cap > 0 ? gradient * fmaxf(fmaf(-t, t, 1), 0) : gradient;
  }
};
struct Zero {
  __device__ float operator()(int, float) const { return 0; }
};
struct Cap {
  float cap, inverse;
  __device__ float operator()(int, float l) const { return tanhf(l * inverse) * cap; }
};

float inverse_of(float cap) { return cap > 0 ? 1 / cap : 0; }

template <class T>
__global__ __launch_bounds__(kMostThreads, 2) void softcap_kernel(void* logits, int64_t stride, int cols, Cap cap) {
  update_row(row_of<T>(logits, stride), cols, cap);
}

struct StatsRow {
  const int32_t* targets;
  int64_t begin;
  float *max, *sum, *target_logit, *dot;
  bool first;
};

template <class T, bool kDot>
__global__ __launch_bounds__(kMostThreads, 2) void logit_stats_kernel(void* logits, int64_t stride, int cols,
                                                                      StatsRow a) {
  const T* row = row_of<T>(logits, stride);
  Stats<double> stats = row_stats<kDot>(row, cols);
  if (threadIdx.x != 0) return;
  const unsigned n = blockIdx.x;
  if (!a.first) {
    Stats<double> before;
    before.max = a.max[n], before.sum = a.sum[n];
    if constexpr (kDot) before.dot = a.dot[n];
    const float most = fmaxf(before.max, stats.max);
    before.shift_to(most), stats.shift_to(most);
    stats.sum += before.sum, stats.dot += before.dot;
  }
  a.max[n] = stats.max;
  a.sum[n] = static_cast<float>(stats.sum);
  if constexpr (kDot) a.dot[n] = static_cast<float>(stats.dot);
  const int64_t target = a.targets[n] - a.begin;
  if (target >= 0 && target < cols) {
    a.target_logit[n] = to_float(row[target]);
  } else if (a.first) {
    a.target_logit[n] = 0;
  }
}

__global__ void log_prob_kernel(int64_t rows, const float* max, const float* sum, const float* target_logit,
                                const float* dot, const int32_t* targets, float* logp, float* lse, float* entropy) {
  const int64_t n = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (n >= rows) return;
  const float log_sum = logf(sum[n]);
  lse[n] = max[n] + log_sum;
  // The distance from the maximum first: both logits may be large where their difference is small.
  logp[n] = targets[n] < 0 ? 0 : (target_logit[n] - max[n]) - log_sum;
  if (entropy) entropy[n] = log_sum - dot[n] / sum[n];
}

struct GradientRow {
  const int32_t* targets;
  int64_t begin;
  const float *lse, *d_logp, *d_lse;
  float inverse_cap;
};

template <class T>
__global__ __launch_bounds__(kMostThreads, 2) void logit_bwd_kernel(void* logits, int64_t stride, int cols,
                                                                    GradientRow a) {
  T* row = row_of<T>(logits, stride);
  const unsigned n = blockIdx.x;
  const int token = a.targets[n];
  const float d_logp = token < 0 ? 0 : a.d_logp[n];
  const float factor = (a.d_lse ? a.d_lse[n] : 0) - d_logp;
  if (factor == 0 && d_logp == 0) return update_row(row, cols, Zero{});
  const int64_t target = token - a.begin;
  const bool inside = token >= 0 && target >= 0 && target < cols;
  update_row(row, cols, Gradient{a.lse[n], factor, d_logp, a.inverse_cap, inside ? static_cast<int>(target) : -1});
}

struct LossRow {
  const int32_t* targets;
  float *loss, *z_term;
  float scale, z_loss, inverse_cap;
  bool write_gradient;
  const StepState* step;  // may be null
};

template <class T>
__global__ __launch_bounds__(kMostThreads, 2) void cross_entropy_kernel(void* logits, int64_t stride, int cols,
                                                                        LossRow a) {
  T* row = row_of<T>(logits, stride);
  const unsigned n = blockIdx.x;
  const int target = a.targets[n];
  const float at_target = threadIdx.x == 0 && target >= 0 ? to_float(row[target]) : 0;  // before it is overwritten
  const Stats<double> stats = row_stats<false>(row, cols);
  const double log_sum = log(stats.sum);
  const auto lse = static_cast<float>(stats.max + log_sum);
  if (threadIdx.x == 0) {
    // max - logit first: both may be large where the loss is small.
    a.loss[n] = target < 0 ? 0 : static_cast<float>(static_cast<double>(stats.max) - at_target + log_sum);
    if (a.z_term) a.z_term[n] = target < 0 ? 0 : a.z_loss * lse * lse;
  }
  if (!a.write_gradient) return;
  if (target < 0) return update_row(row, cols, Zero{});
  const float scale = a.scale * (a.step ? a.step->loss_factor * a.step->loss_scale : 1.0f);
  update_row(row, cols, Gradient{lse, scale * (1 + 2 * a.z_loss * lse), -scale, a.inverse_cap, target});
}

// Rows of logits and the threads of a block for one: enough for a turn of every one, a function of V alone.
struct Launch {
  Rows rows;
  int cols, threads;
  Launch(const View& logits, const char* kernel) : rows(as_rows(logits, kernel)) {
    LOAM_CHECK(rows.cols <= std::numeric_limits<int>::max() / 2, "{}: {} columns", kernel, rows.cols);
    cols = static_cast<int>(rows.cols);
    const int64_t per_thread = kInFlight * 16 / dtype_size(logits.dtype);
    threads = kMostThreads;
    while (threads > kWarp && threads / 2 * per_thread >= rows.cols) threads /= 2;
  }
  dim3 blocks() const { return dim3(static_cast<unsigned>(rows.rows)); }
  // Where a row's columns do not depend on each other: parts of few rows too.
  dim3 split_blocks() const {
    constexpr int64_t kEnough = 132 * 4;
    const int64_t most = ceil_div(rows.cols, int64_t{threads} * kInFlight * 4);
    const int64_t parts = std::max<int64_t>(1, std::min(most, ceil_div(kEnough, std::max<int64_t>(rows.rows, 1))));
    return dim3(static_cast<unsigned>(rows.rows), static_cast<unsigned>(parts));
  }
};

void softcap(const ExecContext& ctx, const SoftcapArgs& a) {
  const Launch launch(a.logits, "softcap");
  if (a.logits.numel() == 0) return;
  for_float(a.logits.dtype, "softcap", [&](auto type) {
    softcap_kernel<decltype(type)><<<launch.split_blocks(), launch.threads, 0, stream_of(ctx.stream)>>>(
        a.logits.data, launch.rows.stride, launch.cols, Cap{a.cap, 1 / a.cap});
    launched("softcap");
  });
}

void logit_stats(const ExecContext& ctx, const LogitStatsArgs& a) {
  const Launch launch(a.logits, "logit_stats");
  if (launch.rows.rows == 0) return;
  const StatsRow row{.targets = a.targets.ptr<int32_t>(),
                     .begin = a.begin,
                     .max = a.max.ptr<float>(),
                     .sum = a.sum.ptr<float>(),
                     .target_logit = a.target_logit.ptr<float>(),
                     .dot = a.dot ? a.dot.ptr<float>() : nullptr,
                     .first = a.first};
  for_float(a.logits.dtype, "logit_stats", [&](auto type) {
    using T = decltype(type);
    const auto kernel = row.dot ? logit_stats_kernel<T, true> : logit_stats_kernel<T, false>;
    kernel<<<launch.blocks(), launch.threads, 0, stream_of(ctx.stream)>>>(a.logits.data, launch.rows.stride,
                                                                          launch.cols, row);
    launched("logit_stats");
  });
}

void log_prob(const ExecContext& ctx, const LogProbArgs& a) {
  constexpr int kThreads = 256;
  const int64_t rows = a.max.numel();
  if (rows == 0) return;
  log_prob_kernel<<<static_cast<unsigned>(ceil_div(rows, kThreads)), kThreads, 0, stream_of(ctx.stream)>>>(
      rows, a.max.ptr<float>(), a.sum.ptr<float>(), a.target_logit.ptr<float>(), a.dot ? a.dot.ptr<float>() : nullptr,
      a.targets.ptr<int32_t>(), a.logp.ptr<float>(), a.lse.ptr<float>(), a.entropy ? a.entropy.ptr<float>() : nullptr);
  launched("log_prob");
}

void logit_bwd(const ExecContext& ctx, const LogitBwdArgs& a) {
  const Launch launch(a.logits, "logit_bwd");
  if (a.logits.numel() == 0) return;
  const GradientRow row{.targets = a.targets.ptr<int32_t>(),
                        .begin = a.begin,
                        .lse = a.lse.ptr<float>(),
                        .d_logp = a.d_logp.ptr<float>(),
                        .d_lse = a.d_lse ? a.d_lse.ptr<float>() : nullptr,
                        .inverse_cap = inverse_of(a.softcap)};
  for_float(a.logits.dtype, "logit_bwd", [&](auto type) {
    logit_bwd_kernel<decltype(type)><<<launch.split_blocks(), launch.threads, 0, stream_of(ctx.stream)>>>(
        a.logits.data, launch.rows.stride, launch.cols, row);
    launched("logit_bwd");
  });
}

void cross_entropy_rows(const ExecContext& ctx, const CrossEntropyRowsArgs& a) {
  const Launch launch(a.logits, "cross_entropy");
  if (launch.rows.rows == 0) return;
  const LossRow row{.targets = a.targets.ptr<int32_t>(),
                    .loss = a.loss.ptr<float>(),
                    .z_term = a.z_term ? a.z_term.ptr<float>() : nullptr,
                    .scale = a.scale,
                    .z_loss = a.z_loss,
                    .inverse_cap = inverse_of(a.softcap),
                    .write_gradient = a.write_gradient,
                    .step = ctx.step};
  for_float(a.logits.dtype, "cross_entropy", [&](auto type) {
    cross_entropy_kernel<decltype(type)><<<launch.blocks(), launch.threads, 0, stream_of(ctx.stream)>>>(
        a.logits.data, launch.rows.stride, launch.cols, row);
    launched("cross_entropy");
  });
}

}  // namespace

void register_cross_entropy_kernels(KernelTable& table) {
  table.softcap.function = softcap;
  table.logit_stats.function = logit_stats;
  table.log_prob.function = log_prob;
  table.logit_bwd.function = logit_bwd;
  table.cross_entropy_rows.function = cross_entropy_rows;
}

}  // namespace loam::cuda
