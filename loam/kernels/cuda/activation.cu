// Activations and gated units, element by element. The kind is looked at in the kernel: all threads take one branch,
// and memory is what they wait for.
#include "loam/kernels/activation.h"

#include "loam/kernels/cuda/register.h"
#include "loam/kernels/cuda/strided.cuh"

namespace loam::cuda {
namespace {

struct ValueAndSlope {
  float value, slope;
};

struct Sigmoid {
  float s, rest;  // 1 / (1 + e^-x), and 1 - s without cancellation where s is close to 1
};
__device__ Sigmoid sigmoid(float x) {
  const float e = expf(-x), s = 1 / (1 + e);
  return {s, x > 0 ? e * s : 1 - s};
}

__device__ ValueAndSlope silu(float x) {
  const Sigmoid g = sigmoid(x);
  return {x * g.s, x * g.s * g.rest + g.s};
}
// The upper tail 1 - Phi(|x|) = e^(-x^2/2) erfcx(|x| / sqrt(2)) / 2 keeps its relative accuracy as far as f32 goes.
__device__ ValueAndSlope gelu(float x) {
  constexpr float kInverseSqrt2 = 0.70710678119f, kInverseSqrt2Pi = 0.3989422804f;
  const float gauss = expf(-0.5f * x * x), tail = 0.5f * erfcxf(fabsf(x) * kInverseSqrt2) * gauss;
  const float cdf = x < 0 ? tail : 1 - tail;
  return {x * cdf, x * kInverseSqrt2Pi * gauss + cdf};
}
// (1 + tanh u) / 2 = sigmoid(2u), which has no cancellation for negative u.
__device__ ValueAndSlope gelu_tanh(float x) {
  constexpr float kScale = 1.5957691216f, kCubic = kScale * 0.044715f;  // kScale: 2 sqrt(2/pi)
  const Sigmoid g = sigmoid(x * (kCubic * x * x + kScale));
  const float value = x * g.s;
  // Beyond 30 the slope is 0 or 1 whatever its last factor, which must stay finite for that.
  const float near = fminf(fmaxf(x, -30.0f), 30.0f);
  return {value, value * g.rest * (3 * kCubic * near * near + kScale) + g.s};
}
// NaN passes: it is not below 0.
__device__ ValueAndSlope relu(float x) { return {x < 0 ? 0 : x, x <= 0 ? 0.0f : 1.0f}; }

__device__ ValueAndSlope apply(Activation kind, float x) {
  switch (kind) {
    case Activation::silu:
      return silu(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::relu:
      return relu(x);
    default: {  // relu_squared
      const float r = relu(x).value;
      return {r * r, 2 * r};
    }
  }
}

template <class T, int W>
struct Forward {
  Activation kind;
  T* out;
  const T* x;
  __device__ void operator()(const std::array<int64_t, 2>& at) const {
    Pack<W> pack = load<W>(x + at[1]);
#pragma unroll
    for (int i = 0; i < W; ++i) pack.v[i] = apply(kind, pack.v[i]).value;
    store(out + at[0], pack);
  }
};

template <class T, int W>
struct Backward {
  Activation kind;
  bool add;
  T* d_x;
  const T *x, *d_out;
  __device__ void operator()(const std::array<int64_t, 3>& at) const {
    const Pack<W> in = load<W>(x + at[1]);
    Pack<W> gradient = load<W>(d_out + at[2]);
#pragma unroll
    for (int i = 0; i < W; ++i) gradient.v[i] *= apply(kind, in.v[i]).slope;
    store_or_add<W>(d_x + at[0], gradient, add);
  }
};

template <class T, int W>
struct GatedForward {
  Activation kind;
  T* out;
  const T *gate, *up;
  __device__ void operator()(const std::array<int64_t, 3>& at) const {
    const Pack<W> g = load<W>(gate + at[1]);
    Pack<W> value = load<W>(up + at[2]);
#pragma unroll
    for (int i = 0; i < W; ++i) value.v[i] *= apply(kind, g.v[i]).value;
    store(out + at[0], value);
  }
};

template <class T, int W>
struct GatedBackward {
  Activation kind;
  bool add;
  const T *d_out, *gate, *up;
  T *d_gate, *d_up;
  __device__ void operator()(const std::array<int64_t, 5>& at) const {
    const Pack<W> d = load<W>(d_out + at[0]), g = load<W>(gate + at[1]), u = load<W>(up + at[2]);
    Pack<W> to_gate, to_up;
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const ValueAndSlope f = apply(kind, g.v[i]);
      to_gate.v[i] = d.v[i] * u.v[i] * f.slope;
      to_up.v[i] = d.v[i] * f.value;
    }
    store_or_add<W>(d_gate + at[3], to_gate, add);
    store_or_add<W>(d_up + at[4], to_up, add);
  }
};

// Half of the last axis: 0 the gate, 1 the up projection.
View half(const View& x, int which) {
  View v = x;
  const int64_t F = x.shape[-1] / 2;
  v.shape[-1] = F;
  v.data = static_cast<std::byte*>(x.data) + which * F * dtype_size(x.dtype);
  return v;
}

// f(T{}, W) for views of one float dtype.
template <int K, class F>
void dispatch(const Strided<K>& views, DType dtype, const char* kernel, F&& f) {
  for_float(dtype, kernel, [&](auto type) { for_width(views.width(), [&](auto width) { f(type, width); }); });
}

void activation_fwd(const ExecContext& ctx, const ActivationFwdArgs& a) {
  const Strided<2> views({a.out, a.x});
  dispatch(views, a.x.dtype, "activation", [&](auto type, auto width) {
    using T = decltype(type);
    constexpr int W = decltype(width)::value;
    for_each_group<W>(ctx, views, "activation",
                      Forward<T, W>{a.kind, static_cast<T*>(a.out.data), static_cast<const T*>(a.x.data)});
  });
}

void activation_bwd(const ExecContext& ctx, const ActivationBwdArgs& a) {
  const Strided<3> views({a.d_x, a.x, a.d_out});
  dispatch(views, a.x.dtype, "activation", [&](auto type, auto width) {
    using T = decltype(type);
    constexpr int W = decltype(width)::value;
    for_each_group<W>(ctx, views, "activation",
                      Backward<T, W>{a.kind, a.accumulate, static_cast<T*>(a.d_x.data), static_cast<const T*>(a.x.data),
                                     static_cast<const T*>(a.d_out.data)});
  });
}

void gated_fwd(const ExecContext& ctx, const GatedFwdArgs& a) {
  const View gate = half(a.x, 0), up = half(a.x, 1);
  const Strided<3> views({a.out, gate, up});
  dispatch(views, a.x.dtype, "gated", [&](auto type, auto width) {
    using T = decltype(type);
    constexpr int W = decltype(width)::value;
    for_each_group<W>(ctx, views, "gated",
                      GatedForward<T, W>{a.kind, static_cast<T*>(a.out.data), static_cast<const T*>(gate.data),
                                         static_cast<const T*>(up.data)});
  });
}

void gated_bwd(const ExecContext& ctx, const GatedBwdArgs& a) {
  const View gate = half(a.x, 0), up = half(a.x, 1), d_gate = half(a.d_x, 0), d_up = half(a.d_x, 1);
  const Strided<5> views({a.d_out, gate, up, d_gate, d_up});
  dispatch(views, a.x.dtype, "gated", [&](auto type, auto width) {
    using T = decltype(type);
    constexpr int W = decltype(width)::value;
    for_each_group<W>(
        ctx, views, "gated",
        GatedBackward<T, W>{a.kind, a.accumulate, static_cast<const T*>(a.d_out.data), static_cast<const T*>(gate.data),
                            static_cast<const T*>(up.data), static_cast<T*>(d_gate.data), static_cast<T*>(d_up.data)});
  });
}

}  // namespace

void register_activation_kernels(KernelTable& table) {
  table.activation_fwd.function = activation_fwd;
  table.activation_bwd.function = activation_bwd;
  table.gated_fwd.function = gated_fwd;
  table.gated_bwd.function = gated_bwd;
}

}  // namespace loam::cuda
