// Activations and gated units. Legend: N rows, F width of the hidden layer.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/activation.cpp"

#include "loam/kernels/activation.h"

#include "loam/kernels/cpu/register.h"
#include "loam/kernels/cpu/simd.h"
#include "loam/kernels/cpu/strided.h"
#include "loam/kernels/kernel_table.h"
// Every instruction set's pass over the rest of this file.
#include "hwy/foreach_target.h"
#include "loam/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

struct ValueAndSlope {
  Vec value, slope;
};

struct Sigmoid {
  Vec s, rest;  // 1 / (1 + e^-x), and 1 - s without cancellation where s is close to 1
};
HWY_INLINE Sigmoid sigmoid(Vec x) {
  const Vec e = exp(hn::Neg(x)), s = hn::Div(set(1), hn::Add(set(1), e));
  return {s, hn::IfThenElse(hn::Gt(x, hn::Zero(F32())), hn::Mul(e, s), hn::Sub(set(1), s))};
}

struct Silu {
  static HWY_INLINE Vec value(Vec x) { return hn::Div(x, hn::Add(set(1), exp(hn::Neg(x)))); }
  static HWY_INLINE ValueAndSlope both(Vec x) {
    const Sigmoid g = sigmoid(x);
    const Vec value = hn::Mul(x, g.s);
    return {value, hn::MulAdd(value, g.rest, g.s)};
  }
};

// x Phi(x), where for x >= 0 the upper tail 1 - Phi(x) = e^(-x^2/2) t P(t), t = 1 / (1 + 0.3 x): the form of Hastings
// 1955 (Abramowitz and Stegun 26.2.17). P is the minimax polynomial of degree 7 in relative error, 1.3e-7 for x up to
// 13.3, beyond which the tail is 0 in f32; so small values for negative x keep their relative accuracy.
struct Gelu {
  static HWY_INLINE Vec phi(Vec x, Vec exponential) {
    const Vec t = hn::Div(set(1), hn::MulAdd(set(0.3f), hn::Abs(x), set(1)));
    Vec p = hn::MulAdd(set(0.03603612f), t, set(-0.15871286f));
    p = hn::MulAdd(p, t, set(0.20896332f));
    p = hn::MulAdd(p, t, set(-0.056094736f));
    p = hn::MulAdd(p, t, set(0.12984282f));
    p = hn::MulAdd(p, t, set(0.09952325f));
    p = hn::MulAdd(p, t, set(0.120816864f));
    p = hn::MulAdd(p, t, set(0.119625166f));
    const Vec tail = hn::Mul(hn::Mul(p, t), exponential);
    return hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), tail, hn::Sub(set(1), tail));
  }
  static HWY_INLINE Vec gauss(Vec x) { return exp(hn::Mul(set(-0.5f), hn::Mul(x, x))); }
  static HWY_INLINE Vec value(Vec x) { return hn::Mul(x, phi(x, gauss(x))); }
  static HWY_INLINE ValueAndSlope both(Vec x) {
    constexpr float kInverseSqrt2Pi = 0.3989422804f;
    const Vec e = gauss(x), cdf = phi(x, e);
    return {hn::Mul(x, cdf), hn::MulAdd(hn::Mul(x, set(kInverseSqrt2Pi)), e, cdf)};
  }
};

// (1 + tanh u) / 2 = sigmoid(2u), which has no cancellation for negative u.
struct GeluTanh {
  static constexpr float kScale = 1.5957691216f;  // 2 sqrt(2/pi)
  static constexpr float kCubic = kScale * 0.044715f;

  static HWY_INLINE Vec twice_u(Vec x) { return hn::Mul(x, hn::MulAdd(set(kCubic), hn::Mul(x, x), set(kScale))); }
  static HWY_INLINE Vec value(Vec x) { return hn::Div(x, hn::Add(set(1), exp(hn::Neg(twice_u(x))))); }
  static HWY_INLINE ValueAndSlope both(Vec x) {
    const Sigmoid g = sigmoid(twice_u(x));
    const Vec value = hn::Mul(x, g.s);
    // Beyond 30 the slope is 0 or 1 whatever its last factor, which must stay finite for that.
    const Vec near = at_least(at_most(x, 30), -30);
    const Vec u_slope = hn::MulAdd(set(3 * kCubic), hn::Mul(near, near), set(kScale));
    return {value, hn::MulAdd(hn::Mul(value, g.rest), u_slope, g.s)};
  }
};

// NaN passes: it is not below 0.
struct Relu {
  static HWY_INLINE Vec value(Vec x) { return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(F32())), x); }
  static HWY_INLINE ValueAndSlope both(Vec x) {
    return {value(x), hn::IfThenZeroElse(hn::Le(x, hn::Zero(F32())), set(1))};
  }
};

struct ReluSquared {
  static HWY_INLINE Vec value(Vec x) { return hn::Mul(Relu::value(x), Relu::value(x)); }
  static HWY_INLINE ValueAndSlope both(Vec x) {
    const Vec r = Relu::value(x);
    return {hn::Mul(r, r), hn::Add(r, r)};
  }
};

template <class F, class T>
void activation_fwd_of(const T* x, T* out, int64_t n) {
  for_vectors(n, [&](int64_t i, auto width) LOAM_LOOP_BODY { store(F::value(load(x + i, width)), out + i, width); });
}

template <class F, class T>
void activation_bwd_of(const T* x, const T* d_out, T* d_x, bool add, int64_t n) {
  for_vectors(n, [&](int64_t i, auto width) LOAM_LOOP_BODY {
    const Vec slope = F::both(load(x + i, width)).slope;
    store_or_add(hn::Mul(load(d_out + i, width), slope), d_x + i, add, width);
  });
}

template <class F, class T>
void gated_fwd_of(const T* gate, const T* up, T* out, int64_t n) {
  for_vectors(n, [&](int64_t i, auto width) LOAM_LOOP_BODY {
    const Vec g = load(gate + i, width), u = load(up + i, width);
    store(hn::Mul(F::value(g), u), out + i, width);
  });
}

template <class F, class T>
void gated_bwd_of(const T* gate, const T* up, const T* d_out, T* d_gate, T* d_up, bool add, int64_t n) {
  for_vectors(n, [&](int64_t i, auto width) LOAM_LOOP_BODY {
    const Vec g = load(gate + i, width), u = load(up + i, width), d = load(d_out + i, width);
    const ValueAndSlope v = F::both(g);
    store_or_add(hn::Mul(hn::Mul(d, u), v.slope), d_gate + i, add, width);
    store_or_add(hn::Mul(d, v.value), d_up + i, add, width);
  });
}

// Calls body(function, T{}) with the function and the element type.
template <class Body>
void chosen(Activation kind, DType dtype, Body&& body) {
  const auto typed = [&](auto function) { visit_float(dtype, "activation", [&](auto type) { body(function, type); }); };
  switch (kind) {
    case Activation::silu:
      return typed(Silu());
    case Activation::gelu:
      return typed(Gelu());
    case Activation::gelu_tanh:
      return typed(GeluTanh());
    case Activation::relu:
      return typed(Relu());
    case Activation::relu_squared:
      return typed(ReluSquared());
  }
}

void activation_fwd_row(Activation kind, DType dtype, const void* x, void* out, int64_t n) {
  chosen(kind, dtype, [&](auto f, auto type) {
    using T = decltype(type);
    activation_fwd_of<decltype(f)>(static_cast<const T*>(x), static_cast<T*>(out), n);
  });
}

void activation_bwd_row(Activation kind, DType dtype, const void* x, const void* d_out, void* d_x, bool add,
                        int64_t n) {
  chosen(kind, dtype, [&](auto f, auto type) {
    using T = decltype(type);
    activation_bwd_of<decltype(f)>(static_cast<const T*>(x), static_cast<const T*>(d_out), static_cast<T*>(d_x), add,
                                   n);
  });
}

void gated_fwd_row(Activation kind, DType dtype, const void* gate, const void* up, void* out, int64_t n) {
  chosen(kind, dtype, [&](auto f, auto type) {
    using T = decltype(type);
    gated_fwd_of<decltype(f)>(static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(out), n);
  });
}

void gated_bwd_row(Activation kind, DType dtype, const void* gate, const void* up, const void* d_out, void* d_gate,
                   void* d_up, bool add, int64_t n) {
  chosen(kind, dtype, [&](auto f, auto type) {
    using T = decltype(type);
    gated_bwd_of<decltype(f)>(static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<const T*>(d_out),
                              static_cast<T*>(d_gate), static_cast<T*>(d_up), add, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace {

HWY_EXPORT(activation_fwd_row);
HWY_EXPORT(activation_bwd_row);
HWY_EXPORT(gated_fwd_row);
HWY_EXPORT(gated_bwd_row);

constexpr int64_t kGrain = 4096;  // elements worth a thread

template <int K>
Walk<K> walk_of(const char* kernel, const std::array<View, K>& views) {
  const Walk<K> w(views);
  LOAM_CHECK(w.rows() == 0 || w.unit_strides(), "{}: the last axis must have a stride of 1", kernel);
  return w;
}

// Half of the last axis: 0 the gate, 1 the up projection.
View half(const View& x, int which) {
  View v = x;
  const int64_t F = x.shape[-1] / 2;
  v.shape[-1] = F;
  v.data = static_cast<std::byte*>(x.data) + which * F * dtype_size(x.dtype);
  return v;
}

void activation_fwd(const ExecContext& ctx, const ActivationFwdArgs& a) {
  walk(ctx.threads, walk_of<2>("activation", {a.out, a.x}), kGrain, [&](const auto& p, int64_t n) {
    HWY_DYNAMIC_DISPATCH(activation_fwd_row)(a.kind, a.x.dtype, p[1], p[0], n);
  });
}

void activation_bwd(const ExecContext& ctx, const ActivationBwdArgs& a) {
  walk(ctx.threads, walk_of<3>("activation", {a.d_x, a.x, a.d_out}), kGrain, [&](const auto& p, int64_t n) {
    HWY_DYNAMIC_DISPATCH(activation_bwd_row)(a.kind, a.x.dtype, p[1], p[2], p[0], a.accumulate, n);
  });
}

void gated_fwd(const ExecContext& ctx, const GatedFwdArgs& a) {
  walk(ctx.threads, walk_of<3>("gated", {a.out, half(a.x, 0), half(a.x, 1)}), kGrain, [&](const auto& p, int64_t n) {
    HWY_DYNAMIC_DISPATCH(gated_fwd_row)(a.kind, a.x.dtype, p[1], p[2], p[0], n);
  });
}

void gated_bwd(const ExecContext& ctx, const GatedBwdArgs& a) {
  const auto w = walk_of<5>("gated", {a.d_out, half(a.x, 0), half(a.x, 1), half(a.d_x, 0), half(a.d_x, 1)});
  walk(ctx.threads, w, kGrain, [&](const auto& p, int64_t n) {
    HWY_DYNAMIC_DISPATCH(gated_bwd_row)(a.kind, a.x.dtype, p[1], p[2], p[0], p[3], p[4], a.accumulate, n);
  });
}

}  // namespace

void register_activation_kernels(KernelTable& table) {
  table.activation_fwd.function = activation_fwd;
  table.activation_bwd.function = activation_bwd;
  table.gated_fwd.function = gated_fwd;
  table.gated_bwd.function = gated_bwd;
}

}  // namespace loam
#endif
