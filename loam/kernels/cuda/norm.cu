// RMSNorm and LayerNorm: a team of threads a row, one warp for narrow rows and a block for wide ones, which holds the
// row in registers between its passes. What does not fit there is read again, from the cache.
#include "loam/kernels/norm.h"

#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/register.h"
#include "loam/kernels/cuda/sum_rows.h"
#include "loam/kernels/grouped_rows.h"

namespace loam::cuda {
namespace {

constexpr int kHeld = 4;                  // packs of a row that a thread holds
constexpr int kBlock = 256;               // threads
constexpr int64_t kWarpRow = kWarp * 32;  // elements of a row that a warp takes
constexpr int64_t kMostBlocks = 132 * 2;  // in flight, where teams add up gradients of the weights

// A row, by the packs that this thread of its team has of it: f(column, pack) for each, in a fixed order.
template <int W, int kTeam, class T>
struct Row {
  const T* data;
  int cols, lane;
  Pack<W> held[kHeld];

  __device__ Row(const T* row, int columns, int thread) : data(row), cols(columns), lane(thread) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if ((k * kTeam + lane) * W < cols) held[k] = load<W>(data + (k * kTeam + lane) * W);
    }
  }
  template <class F>
  __device__ void each(F&& f) const {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if ((k * kTeam + lane) * W < cols) f((k * kTeam + lane) * W, held[k]);
    }
    for (int c = (kHeld * kTeam + lane) * W; c < cols; c += kTeam * W) f(c, load<W>(data + c));
  }
};

template <int kTeam>
__device__ float team_sum(float x, float* scratch) {
  if constexpr (kTeam == kWarp) return warp_sum(x);
  const float sum = block_sum(x, scratch);
  __syncthreads();
  return sum;
}

template <class T>
struct NormForward {
  const T* x;
  GroupedRows in, to;
  const float *weight, *bias;  // bias may be null
  float eps;
  T* out;
  float *mean, *rstd;  // may be null
};

template <class T, int W, int kTeam, bool kCentred>
__global__ void __launch_bounds__(kBlock) norm_fwd_kernel(NormForward<T> a) {
  __shared__ float scratch[kWarp];
  const int64_t n = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (n >= a.in.rows) return;
  const int C = static_cast<int>(a.in.cols);
  const Row<W, kTeam, T> row(a.x + a.in.at(n), C, threadIdx.x);
  float mean = 0;
  if constexpr (kCentred) {
    float sum = 0;
    row.each([&](int, const Pack<W>& p) {
#pragma unroll
      for (int i = 0; i < W; ++i) sum += p.v[i];
    });
    mean = team_sum<kTeam>(sum, scratch) / static_cast<float>(C);
  }
  float squares = 0;
  row.each([&](int, const Pack<W>& p) {
#pragma unroll
    for (int i = 0; i < W; ++i) squares += (p.v[i] - mean) * (p.v[i] - mean);
  });
  const float rstd = 1 / sqrtf(team_sum<kTeam>(squares, scratch) / static_cast<float>(C) + a.eps);
  T* out = a.out + a.to.at(n);
  row.each([&](int c, Pack<W> p) {
    const Pack<W> w = load<W>(a.weight + c);
    const Pack<W> b = kCentred && a.bias ? load<W>(a.bias + c) : Pack<W>{};
#pragma unroll
    for (int i = 0; i < W; ++i) p.v[i] = (p.v[i] - mean) * rstd * w.v[i] + b.v[i];
    store(out + c, p);
  });
  if (threadIdx.x != 0) return;
  if (kCentred && a.mean) a.mean[n] = mean;
  if (a.rstd) a.rstd[n] = rstd;
}

template <class T>
struct NormBackward {
  const T *x, *d_out;
  GroupedRows in, gradient, to;
  const float *weight, *mean, *rstd;
  T* d_x;  // may be null
  bool accumulate;
  float *d_weight, *d_bias;  // [teams, C] each, what a team adds up; may be null
};

// The gradients of the weights are added up by columns, so that a thread can keep those of its columns in registers
// over all rows of its team; beyond these it adds them up where they are to go.
template <class T, int W, int kTeam, bool kCentred>
__global__ void __launch_bounds__(kBlock) norm_bwd_kernel(NormBackward<T> a) {
  __shared__ float scratch[kWarp];
  const int64_t team = int64_t{blockIdx.x} * blockDim.y + threadIdx.y, teams = int64_t{gridDim.x} * blockDim.y;
  const int C = static_cast<int>(a.in.cols);
  constexpr int kSpan = kHeld * kTeam * W;
  Pack<W> d_weight[kHeld] = {}, d_bias[kHeld] = {};
  float *to_weight = a.d_weight ? a.d_weight + team * C : nullptr,
        *to_bias = kCentred && a.d_bias ? a.d_bias + team * C : nullptr;
  if (team >= a.in.rows) {  // adds nothing up
    for (int c = kSpan + threadIdx.x * W; c < C; c += kTeam * W) {
      if (to_weight) store(to_weight + c, Pack<W>{});
      if (to_bias) store(to_bias + c, Pack<W>{});
    }
  }
  for (int64_t n = team; n < a.in.rows; n += teams) {
    const Row<W, kTeam, T> x(a.x + a.in.at(n), C, threadIdx.x), d(a.d_out + a.gradient.at(n), C, threadIdx.x);
    const float mean = kCentred ? a.mean[n] : 0, rstd = a.rstd[n];
    float g_sum = 0, gh_sum = 0;
    // One column: the sums over g = d_out * weight and g * h, and the gradients of weight and bias.
    const auto look = [&](int c, const Pack<W>& in, const Pack<W>& out, Pack<W>& weight_sum, Pack<W>& bias_sum) {
      const Pack<W> w = load<W>(a.weight + c);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const float h = (in.v[i] - mean) * rstd, g = out.v[i] * w.v[i];
        g_sum += g;
        gh_sum += g * h;
        weight_sum.v[i] += out.v[i] * h;
        if constexpr (kCentred) bias_sum.v[i] += out.v[i];
      }
    };
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int c = (k * kTeam + threadIdx.x) * W;
      if (c < C) look(c, x.held[k], d.held[k], d_weight[k], d_bias[k]);
    }
    for (int c = kSpan + threadIdx.x * W; c < C; c += kTeam * W) {
      Pack<W> weight_sum = {}, bias_sum = {};
      look(c, load<W>(x.data + c), load<W>(d.data + c), weight_sum, bias_sum);
      if (to_weight) store_or_add<W>(to_weight + c, weight_sum, n != team);
      if (to_bias) store_or_add<W>(to_bias + c, bias_sum, n != team);
    }
    if (!a.d_x) continue;
    const float mean_g = kCentred ? team_sum<kTeam>(g_sum, scratch) / static_cast<float>(C) : 0;
    const float mean_gh = team_sum<kTeam>(gh_sum, scratch) / static_cast<float>(C);
    T* d_x = a.d_x + a.to.at(n);
    const auto write = [&](int c, const Pack<W>& in, const Pack<W>& out) {
      const Pack<W> w = load<W>(a.weight + c);
      Pack<W> p;
#pragma unroll
      for (int i = 0; i < W; ++i) {
        p.v[i] = rstd * (out.v[i] * w.v[i] - mean_g - (in.v[i] - mean) * rstd * mean_gh);
      }
      store_or_add<W>(d_x + c, p, a.accumulate);
    };
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int c = (k * kTeam + threadIdx.x) * W;
      if (c < C) write(c, x.held[k], d.held[k]);
    }
    for (int c = kSpan + threadIdx.x * W; c < C; c += kTeam * W) write(c, load<W>(x.data + c), load<W>(d.data + c));
  }
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int c = (k * kTeam + threadIdx.x) * W;
    if (c < C && to_weight) store(to_weight + c, d_weight[k]);
    if (c < C && to_bias) store(to_bias + c, d_bias[k]);
  }
}

bool takes_warp(int64_t cols) { return cols <= kWarpRow; }
dim3 block_of(int64_t cols) { return takes_warp(cols) ? dim3(kWarp, kBlock / kWarp) : dim3(kBlock, 1); }

// f(W, team) as integral constants. Rows that are not read in wide packs are odd ones: width 4 is not worth its code.
template <class F>
void for_shape(int width, int64_t cols, F&& f) {
  const auto team = [&](auto w) {
    if (takes_warp(cols)) return f(w, std::integral_constant<int, kWarp>{});
    f(w, std::integral_constant<int, kBlock>{});
  };
  width == 8 ? team(std::integral_constant<int, 8>{}) : team(std::integral_constant<int, 1>{});
}

// The smallest step between rows as far as alignment goes.
int64_t step_of(const GroupedRows& rows) {
  return rows.group == 1 ? rows.group_stride : rows.group_stride | rows.stride;
}

void check_width(const GroupedRows& rows, const char* what) {
  LOAM_CHECK(rows.cols < (int64_t{1} << 30), "{}: rows of {} elements", what, rows.cols);
}

template <bool kCentred>
void forward(const ExecContext& ctx, const View& x, const View& weight, const View& bias, float eps, const View& out,
             const View& mean, const View& rstd, const char* name) {
  const GroupedRows in = grouped_rows(x, name), to = grouped_rows(out, name);
  check_width(in, name);
  if (in.rows == 0) return;
  for_float(x.dtype, name, [&](auto type) {
    using T = decltype(type);
    const NormForward<T> args{static_cast<const T*>(x.data),
                              in,
                              to,
                              weight.ptr<float>(),
                              bias ? bias.ptr<float>() : nullptr,
                              eps,
                              static_cast<T*>(out.data),
                              mean ? mean.ptr<float>() : nullptr,
                              rstd ? rstd.ptr<float>() : nullptr};
    const int width = pack_width(
        in.cols,
        {{args.x, sizeof(T), step_of(in)}, {args.out, sizeof(T), step_of(to)}, {args.weight, 4, 0}, {args.bias, 4, 0}});
    const dim3 block = block_of(in.cols);
    const auto grid = static_cast<unsigned>(ceil_div(in.rows, block.y));
    for_shape(width, in.cols, [&](auto w, auto team) {
      norm_fwd_kernel<T, decltype(w)::value, decltype(team)::value, kCentred>
          <<<grid, block, 0, stream_of(ctx.stream)>>>(args);
    });
    launched(name);
  });
}

template <bool kCentred>
void backward(const ExecContext& ctx, const LayerNormBwdArgs& a, const char* name) {
  const GroupedRows in = grouped_rows(a.x, name), gradient = grouped_rows(a.d_out, name);
  const GroupedRows to = a.d_x ? grouped_rows(a.d_x, name) : GroupedRows{};
  check_width(in, name);
  const dim3 block = block_of(in.cols);
  const int64_t blocks = std::max<int64_t>(1, std::min(ceil_div(in.rows, block.y), kMostBlocks));
  const int64_t teams = blocks * block.y;
  const auto partial = [&](const View& v) {
    return v ? ctx.empty({teams, in.cols}, DType::f32, MemoryKind::workspace) : Tensor();
  };
  const Tensor d_weight = partial(a.d_weight), d_bias = partial(a.d_bias);
  if (ctx.arena->sparse() || in.cols == 0) return;
  for_float(a.x.dtype, name, [&](auto type) {
    using T = decltype(type);
    const NormBackward<T> args{static_cast<const T*>(a.x.data),
                               static_cast<const T*>(a.d_out.data),
                               in,
                               gradient,
                               to,
                               a.weight.ptr<float>(),
                               kCentred ? a.mean.ptr<float>() : nullptr,
                               a.rstd.ptr<float>(),
                               static_cast<T*>(a.d_x.data),
                               a.accumulate_x,
                               d_weight ? d_weight.data<float>() : nullptr,
                               d_bias ? d_bias.data<float>() : nullptr};
    const int width = pack_width(in.cols, {{args.x, sizeof(T), step_of(in)},
                                           {args.d_out, sizeof(T), step_of(gradient)},
                                           {args.d_x, sizeof(T), step_of(to)},
                                           {args.weight, 4, 0}});
    for_shape(width, in.cols, [&](auto w, auto team) {
      norm_bwd_kernel<T, decltype(w)::value, decltype(team)::value, kCentred>
          <<<static_cast<unsigned>(blocks), block, 0, stream_of(ctx.stream)>>>(args);
    });
    launched(name);
  });
  const auto add_up = [&](const Tensor& partials, const View& to_vector) {
    if (partials) sum_rows(ctx, partials.data<float>(), teams, in.cols, to_vector.ptr<float>(), a.accumulate_weight);
  };
  add_up(d_weight, a.d_weight);
  add_up(d_bias, a.d_bias);
}

void rms_norm_fwd(const ExecContext& ctx, const RmsNormFwdArgs& a) {
  forward<false>(ctx, a.x, a.weight, {}, a.eps, a.out, {}, a.rstd, "rms_norm");
}
void layer_norm_fwd(const ExecContext& ctx, const LayerNormFwdArgs& a) {
  forward<true>(ctx, a.x, a.weight, a.bias, a.eps, a.out, a.mean, a.rstd, "layer_norm");
}
void rms_norm_bwd(const ExecContext& ctx, const RmsNormBwdArgs& a) {
  LayerNormBwdArgs args;
  args.x = a.x;
  args.weight = a.weight;
  args.rstd = a.rstd;
  args.d_out = a.d_out;
  args.d_x = a.d_x;
  args.accumulate_x = a.accumulate_x;
  args.d_weight = a.d_weight;
  args.accumulate_weight = a.accumulate_weight;
  backward<false>(ctx, args, "rms_norm");
}
void layer_norm_bwd(const ExecContext& ctx, const LayerNormBwdArgs& a) { backward<true>(ctx, a, "layer_norm"); }

}  // namespace

void register_norm_kernels(KernelTable& table) {
  table.rms_norm_fwd.function = rms_norm_fwd;
  table.rms_norm_bwd.function = rms_norm_bwd;
  table.layer_norm_fwd.function = layer_norm_fwd;
  table.layer_norm_bwd.function = layer_norm_bwd;
}

}  // namespace loam::cuda
