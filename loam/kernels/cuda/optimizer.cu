// Sums of squares and the rules of optimizers over runs of parameters. Legend: n elements.
//
// A thread has four neighbours at a time, 16 bytes of every array, where all arrays are aligned so far; the last n % 4
// elements go one by one. What changes from step to step is read from the device's memory by every thread. Products
// whose rounding the CPU keeps apart from a sum are written __fmul_rn, so that they are not contracted.
#include "loam/kernels/optimizer.h"

#include <algorithm>

#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/register.h"

namespace loam::cuda {
namespace {

constexpr int kThreads = 256;

// rule.start(state), then rule.at<W>(i) for every W elements from i on, unless start said false.
template <int W, class Rule>
__global__ __launch_bounds__(kThreads) void elements_kernel(int64_t n, const StepState* step, Rule rule) {
  if (!rule.start(*step)) return;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x, packs = n / W;
  for (int64_t i = first; i < packs; i += int64_t{gridDim.x} * kThreads) rule.template at<W>(i * W);
  if (packs * W + first < n) rule.template at<1>(packs * W + first);
}

template <class Rule>
void over_elements(const ExecContext& ctx, const char* name, int64_t n, std::initializer_list<View> arrays,
                   const Rule& rule) {
  LOAM_CHECK(ctx.step != nullptr, "{}: the context has no step state", name);
  if (n == 0) return;
  constexpr int kWide = 4;
  bool wide = true;
  for (const View& v : arrays)
    wide = wide && pack_width(kWide, {{v.data, static_cast<int>(dtype_size(v.dtype)), 0}}) == kWide;
  const unsigned blocks = grid_for(ceil_div(n, kWide), kThreads);
  const auto kernel = wide ? elements_kernel<kWide, Rule> : elements_kernel<1, Rule>;
  kernel<<<blocks, kThreads, 0, stream_of(ctx.stream)>>>(n, ctx.step, rule);
  launched(name);
}

__device__ inline float rounded(double value) { return static_cast<float>(value); }

// What every rule updates. rule.start(state, rate, decay) makes the step's factors, its members that begin as 0;
// rule.next<W>(i, g, w) puts the new parameters into w and keeps the state of the rule up to date.
template <class Rule>
struct Update {
  float* master;
  AnyFloat weight;
  const float* gradient;  // null: the rule has none
  float lr_scale, weight_decay;
  Rule rule;
  float gradient_scale = 1;

  Update(const UpdateArgs& a, const Rule& r)
      : master(a.master.ptr<float>()),
        weight(a.weight),
        gradient(a.gradient ? a.gradient.ptr<float>() : nullptr),
        lr_scale(a.lr_scale),
        weight_decay(a.weight_decay),
        rule(r) {}

  __device__ bool start(const StepState& state) {
    if (state.skip != 0) return false;
    gradient_scale = state.gradient_scale;
    rule.start(state, static_cast<double>(state.learning_rate) * lr_scale, weight_decay);
    return true;
  }
  template <int W>
  __device__ void at(int64_t i) const {
    Pack<W> g{}, w = load<W>(master + i);
    if (gradient) {
      g = load<W>(gradient + i);
#pragma unroll
      for (int e = 0; e < W; ++e) g.v[e] = __fmul_rn(g.v[e], gradient_scale);
    }
    rule.template next<W>(i, g, w);
    store(master + i, w);
    if (weight.data) store(weight + i, w);
  }
};

template <class Rule>
void update(const ExecContext& ctx, const char* name, const UpdateArgs& a, std::initializer_list<View> state,
            const Rule& rule) {
  View first, second;
  if (state.size() > 0) first = *state.begin();
  if (state.size() > 1) second = *(state.begin() + 1);
  over_elements(ctx, name, a.master.numel(), {a.master, a.weight, a.gradient, first, second}, Update<Rule>(a, rule));
}

float* state_of(const View& v) { return v ? v.ptr<float>() : nullptr; }

__global__ void clip_kernel(const double* squares, const double* losses, double max_norm, StepState* step) {
  const double norm = sqrt(*squares);
  if (!isfinite(norm) || (losses && !isfinite(*losses))) {
    step->skip = 1;
  } else if (max_norm > 0) {
    step->gradient_scale *= static_cast<float>(fmin(1.0, max_norm / (norm + 1e-6)));
  }
}

void clip(const ExecContext& ctx, const ClipArgs& a) {
  clip_kernel<<<1, 1, 0, stream_of(ctx.stream)>>>(a.squares, a.losses, a.max_norm, ctx.step);
  launched("clip");
}

struct Adam {
  float *m, *v;
  double exact_beta1, exact_beta2;
  float eps;
  AdamForm form;
  float beta1 = 0, one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, decay = 0, kept = 0, step = 0, inverse_root = 0;

  __device__ void start(const StepState& state, double lr, float weight_decay) {
    const bool course = form == AdamForm::course;
    const auto t = static_cast<double>(state.updates + 1);
    const double c1 = 1 - pow(exact_beta1, t), root2 = sqrt(1 - pow(exact_beta2, t));
    beta1 = rounded(exact_beta1), one_minus_beta1 = rounded(1 - exact_beta1);
    beta2 = rounded(exact_beta2), one_minus_beta2 = rounded(1 - exact_beta2);
    decay = weight_decay, kept = rounded(1 - __dmul_rn(lr, weight_decay));
    step = rounded(lr / c1 * (course ? root2 : 1));
    inverse_root = rounded(course ? 1 : 1 / root2);
  }
  template <int W>
  __device__ void next(int64_t i, const Pack<W>& gradient, Pack<W>& w) const {
    Pack<W> mean = load<W>(m + i), square = load<W>(v + i);
#pragma unroll
    for (int e = 0; e < W; ++e) {
      const float g = form == AdamForm::l2 ? fmaf(decay, w.v[e], gradient.v[e]) : gradient.v[e];
      mean.v[e] = fmaf(beta1, mean.v[e], __fmul_rn(one_minus_beta1, g));
      square.v[e] = fmaf(beta2, square.v[e], __fmul_rn(__fmul_rn(one_minus_beta2, g), g));
      const float root = fmaf(sqrtf(square.v[e]), inverse_root, eps);
      const float change = __fmul_rn(step, mean.v[e]) / root;
      if (form == AdamForm::course) {
        w.v[e] = __fmul_rn(w.v[e] - change, kept);
      } else {
        w.v[e] = (form == AdamForm::l2 ? w.v[e] : __fmul_rn(w.v[e], kept)) - change;
      }
    }
    store(m + i, mean);
    store(v + i, square);
  }
};

void adamw(const ExecContext& ctx, const AdamwArgs& a) {
  update(ctx, "adamw", a, {a.m, a.v},
         Adam{.m = a.m.ptr<float>(),
              .v = a.v.ptr<float>(),
              .exact_beta1 = a.beta1,
              .exact_beta2 = a.beta2,
              .eps = a.eps,
              .form = a.form});
}

struct Sgd {
  float* buffer;
  float momentum;
  double dampening;
  bool nesterov;
  float lr = 0, decay = 0, kept = 0, taken = 0;

  __device__ void start(const StepState& state, double rate, float weight_decay) {
    const bool first = state.updates == 0;
    lr = rounded(rate), decay = weight_decay;
    kept = first ? 0 : momentum, taken = first ? 1 : rounded(1 - dampening);
  }
  template <int W>
  __device__ void next(int64_t i, const Pack<W>& gradient, Pack<W>& w) const {
    Pack<W> mean{};
    if (buffer) mean = load<W>(buffer + i);
#pragma unroll
    for (int e = 0; e < W; ++e) {
      float g = fmaf(decay, w.v[e], gradient.v[e]);
      if (buffer) {
        mean.v[e] = fmaf(kept, mean.v[e], __fmul_rn(taken, g));
        g = nesterov ? fmaf(momentum, mean.v[e], g) : mean.v[e];
      }
      w.v[e] = fmaf(-lr, g, w.v[e]);
    }
    if (buffer) store(buffer + i, mean);
  }
};

void sgd(const ExecContext& ctx, const SgdArgs& a) {
  update(ctx, "sgd", a, {a.buffer},
         Sgd{.buffer = state_of(a.buffer), .momentum = a.momentum, .dampening = a.dampening, .nesterov = a.nesterov});
}

struct Adagrad {
  float* sum;
  float eps;
  float lr = 0, decay = 0;

  __device__ void start(const StepState&, double rate, float weight_decay) { lr = rounded(rate), decay = weight_decay; }
  template <int W>
  __device__ void next(int64_t i, const Pack<W>& gradient, Pack<W>& w) const {
    Pack<W> squares = load<W>(sum + i);
#pragma unroll
    for (int e = 0; e < W; ++e) {
      const float g = fmaf(decay, w.v[e], gradient.v[e]);
      squares.v[e] = fmaf(g, g, squares.v[e]);
      w.v[e] -= __fmul_rn(lr, g) / (sqrtf(squares.v[e]) + eps);
    }
    store(sum + i, squares);
  }
};

void adagrad(const ExecContext& ctx, const AdagradArgs& a) {
  update(ctx, "adagrad", a, {a.sum}, Adagrad{.sum = a.sum.ptr<float>(), .eps = a.eps});
}

struct Rmsprop {
  float *v, *buffer;
  double exact_alpha;
  float eps, momentum;
  float lr = 0, decay = 0, alpha = 0, one_minus_alpha = 0;

  __device__ void start(const StepState&, double rate, float weight_decay) {
    lr = rounded(rate), decay = weight_decay;
    alpha = rounded(exact_alpha), one_minus_alpha = rounded(1 - exact_alpha);
  }
  template <int W>
  __device__ void next(int64_t i, const Pack<W>& gradient, Pack<W>& w) const {
    Pack<W> square = load<W>(v + i), mean{};
    if (buffer) mean = load<W>(buffer + i);
#pragma unroll
    for (int e = 0; e < W; ++e) {
      const float g = fmaf(decay, w.v[e], gradient.v[e]);
      square.v[e] = fmaf(alpha, square.v[e], __fmul_rn(__fmul_rn(one_minus_alpha, g), g));
      float change = g / (sqrtf(square.v[e]) + eps);
      if (buffer) change = mean.v[e] = fmaf(momentum, mean.v[e], change);
      w.v[e] = fmaf(-lr, change, w.v[e]);
    }
    store(v + i, square);
    if (buffer) store(buffer + i, mean);
  }
};

void rmsprop(const ExecContext& ctx, const RmspropArgs& a) {
  update(ctx, "rmsprop", a, {a.v, a.buffer},
         Rmsprop{.v = a.v.ptr<float>(),
                 .buffer = state_of(a.buffer),
                 .exact_alpha = a.alpha,
                 .eps = a.eps,
                 .momentum = a.momentum});
}

struct Lion {
  float* m;
  double exact_beta1, exact_beta2;
  float lr = 0, kept = 0, beta1 = 0, one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0;

  __device__ void start(const StepState&, double rate, float weight_decay) {
    lr = rounded(rate), kept = rounded(1 - __dmul_rn(rate, weight_decay));
    beta1 = rounded(exact_beta1), one_minus_beta1 = rounded(1 - exact_beta1);
    beta2 = rounded(exact_beta2), one_minus_beta2 = rounded(1 - exact_beta2);
  }
  template <int W>
  __device__ void next(int64_t i, const Pack<W>& gradient, Pack<W>& w) const {
    Pack<W> before = load<W>(m + i);
#pragma unroll
    for (int e = 0; e < W; ++e) {
      const float mean = fmaf(beta1, before.v[e], __fmul_rn(one_minus_beta1, gradient.v[e]));
      const float change = mean == 0 ? 0 : copysignf(lr, mean);
      before.v[e] = fmaf(beta2, before.v[e], __fmul_rn(one_minus_beta2, gradient.v[e]));
      w.v[e] = __fmul_rn(w.v[e], kept) - change;
    }
    store(m + i, before);
  }
};

void lion(const ExecContext& ctx, const LionArgs& a) {
  update(ctx, "lion", a, {a.m}, Lion{.m = a.m.ptr<float>(), .exact_beta1 = a.beta1, .exact_beta2 = a.beta2});
}

struct MuonMomentum {
  const float* gradient;
  float *m, *out;
  double exact_momentum;
  bool nesterov;
  bool skip = false;
  float gradient_scale = 1, momentum = 0, one_minus_momentum = 0;

  __device__ bool start(const StepState& state) {
    skip = state.skip != 0, gradient_scale = state.gradient_scale;
    momentum = rounded(exact_momentum), one_minus_momentum = rounded(1 - exact_momentum);
    return true;
  }
  template <int W>
  __device__ void at(int64_t i) const {
    if (skip) return store(out + i, Pack<W>{});
    Pack<W> mean = load<W>(m + i), result = load<W>(gradient + i);
#pragma unroll
    for (int e = 0; e < W; ++e) {
      const float g = __fmul_rn(one_minus_momentum, __fmul_rn(result.v[e], gradient_scale));
      mean.v[e] = fmaf(momentum, mean.v[e], g);
      result.v[e] = nesterov ? fmaf(momentum, mean.v[e], g) : mean.v[e];
    }
    store(m + i, mean);
    store(out + i, result);
  }
};

void muon_momentum(const ExecContext& ctx, const MuonMomentumArgs& a) {
  over_elements(ctx, "muon_momentum", a.m.numel(), {a.gradient, a.m, a.out},
                MuonMomentum{.gradient = a.gradient.ptr<float>(),
                             .m = a.m.ptr<float>(),
                             .out = a.out.ptr<float>(),
                             .exact_momentum = a.momentum,
                             .nesterov = a.nesterov});
}

struct MuonApply {
  const float* update;
  float scale;
  float kept = 0, step = 0;

  __device__ void start(const StepState&, double lr, float weight_decay) {
    kept = rounded(1 - __dmul_rn(lr, weight_decay)), step = rounded(lr * scale);
  }
  template <int W>
  __device__ void next(int64_t i, const Pack<W>&, Pack<W>& w) const {
    const Pack<W> change = load<W>(update + i);
#pragma unroll
    for (int e = 0; e < W; ++e) w.v[e] = fmaf(-step, change.v[e], __fmul_rn(w.v[e], kept));
  }
};

void muon_apply(const ExecContext& ctx, const MuonApplyArgs& a) {
  UpdateArgs without = a;
  without.gradient = {};
  update(ctx, "muon_apply", without, {a.update}, MuonApply{.update = a.update.ptr<float>(), .scale = a.scale});
}

// A block sums a chunk of the elements; one block then the chunks' sums. Which thread adds what, and in which order,
// depends on n alone. The square of an f32 is never too large for f64.
constexpr int64_t kChunk = 16384;
constexpr int kSumThreads = 1024;

__device__ double block_total(double x) {
  __shared__ double sums[kWarp];
  const int lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  if (lane == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = lane < warps ? sums[lane] : 0;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

template <int W, class T>
__global__ __launch_bounds__(kThreads) void sum_squares_kernel(const T* x, int64_t n, double* sums) {
  const int64_t begin = blockIdx.x * kChunk;
  const int count = static_cast<int>(n - begin < kChunk ? n - begin : kChunk), packs = count / W;
  x += begin;
  double sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < packs; i += kThreads) {
    const Pack<W> pack = load<W>(x + i * W);
#pragma unroll
    for (int e = 0; e < W; ++e) {
      const double value = pack.v[e];
      sum = fma(value, value, sum);
    }
  }
  if (const int i = packs * W + static_cast<int>(threadIdx.x); i < count) {
    const double value = to_float(x[i]);
    sum = fma(value, value, sum);
  }
  sum = block_total(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ __launch_bounds__(kSumThreads) void add_chunks_kernel(const double* sums, int64_t chunks, double* out) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += kSumThreads) sum += sums[i];
  sum = block_total(sum);
  if (threadIdx.x == 0) *out += sum;
}

void sum_squares(const ExecContext& ctx, const SumSquaresArgs& a) {
  const int64_t n = a.x.numel(), chunks = ceil_div(n, kChunk);
  if (n == 0) return;
  const cudaStream_t stream = stream_of(ctx.stream);
  const Tensor partials = ctx.empty({chunks, 8}, DType::u8, MemoryKind::workspace);  // of one f64 each
  auto* sums = reinterpret_cast<double*>(partials.data<uint8_t>());
  for_float(a.x.dtype, "sum_squares", [&](auto type) {
    using T = decltype(type);
    constexpr int kWide = 16 / sizeof(T);
    const bool wide = pack_width(kWide, {{a.x.data, sizeof(T), 0}}) == kWide;
    const auto kernel = wide ? sum_squares_kernel<kWide, T> : sum_squares_kernel<1, T>;
    kernel<<<static_cast<unsigned>(chunks), kThreads, 0, stream>>>(static_cast<const T*>(a.x.data), n, sums);
    launched("sum_squares");
  });
  add_chunks_kernel<<<1, kSumThreads, 0, stream>>>(sums, chunks, a.out);
  launched("sum_squares");
}

}  // namespace

void register_optimizer_kernels(KernelTable& table) {
  table.sum_squares.function = sum_squares;
  table.clip.function = clip;
  table.adamw.function = adamw;
  table.sgd.function = sgd;
  table.adagrad.function = adagrad;
  table.rmsprop.function = rmsprop;
  table.lion.function = lion;
  table.muon_momentum.function = muon_momentum;
  table.muon_apply.function = muon_apply;
}

}  // namespace loam::cuda
