// Rotary position embedding. Legend: N tokens, H heads, D head dim, R rotated elements of a head.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/rope.cpp"

#include "loam/kernels/rope.h"

#include <algorithm>
#include <cstring>

#include "loam/kernels/cpu/register.h"
#include "loam/kernels/cpu/row_blocks.h"
#include "loam/kernels/cpu/simd.h"
#include "loam/kernels/kernel_table.h"
// Every instruction set's pass over the rest of this file.
#include "hwy/foreach_target.h"
#include "loam/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

// Pairs rotated together; their cosines and sines stay in the nearest cache while every head of the token uses them.
inline constexpr int64_t kPairs = 256;

struct Rotation {
  HWY_ALIGN float cos[kPairs], sin[kPairs];
  // The same for each element of an interleaved row: (c0, c0, c1, c1, ...) and (-s0, s0, -s1, s1, ...).
  HWY_ALIGN float cos_each[2 * kPairs], sin_each[2 * kPairs];
};

// remainder = angle - quadrant pi/2 with |remainder| <= pi/4, from angle = position * frequency. The product and the
// reduction are taken in f64: exact to 1e-11 for every position below 2^17, and to 1e-6 for any i32.
template <class D>
HWY_INLINE void reduce_some(D d, double position, const float* frequency, float* remainder, float* quadrant) {
  const hn::Rebind<float, D> half;                    // as many f32
  const auto shift = hn::Set(d, 6755399441055744.0);  // 1.5 * 2^52: adding and subtracting it rounds to an integer
  const auto angle = hn::Mul(hn::Set(d, position), hn::PromoteTo(d, hn::LoadU(half, frequency)));
  const auto q = hn::Sub(hn::MulAdd(angle, hn::Set(d, 0.63661977236758134308), shift), shift);
  const auto turns = hn::Sub(hn::MulAdd(q, hn::Set(d, 0.25), shift), shift);
  hn::StoreU(hn::DemoteTo(half, hn::NegMulAdd(q, hn::Set(d, 1.57079632679489661923), angle)), half, remainder);
  hn::StoreU(hn::DemoteTo(half, hn::NegMulAdd(turns, hn::Set(d, 4.0), q)), half, quadrant);  // -2 .. 2
}

HWY_INLINE void reduce_angles(int32_t position, const float* frequency, int64_t count, float* remainder,
                              float* quadrant) {
  const hn::ScalableTag<double> d;
  constexpr int64_t kStep = hn::MaxLanes(d);
  int64_t k = 0;
  for (; k + kStep <= count; k += kStep) reduce_some(d, position, frequency + k, remainder + k, quadrant + k);
  for (; k < count; ++k) reduce_some(hn::CappedTag<double, 1>(), position, frequency + k, remainder + k, quadrant + k);
}

// sin and cos of remainder + quadrant pi/2, times their factors; the polynomials of Moshier's Cephes library (sinf,
// cosf), error 1e-7.
HWY_INLINE void sin_cos(const float* remainder, const float* quadrant, int64_t count, float sin_factor,
                        float cos_factor, Rotation& to) {
  for_vectors(count, [&](int64_t k, auto width) LOAM_LOOP_BODY {
    const F32 d;
    const Vec r = load(remainder + k, width), q = load(quadrant + k, width), r2 = hn::Mul(r, r);
    Vec s = hn::MulAdd(set(-1.9515295891e-4f), r2, set(8.3321608736e-3f));
    s = hn::MulAdd(s, r2, set(-1.6666654611e-1f));
    s = hn::MulAdd(hn::Mul(s, r2), r, r);
    Vec c = hn::MulAdd(set(2.443315711809948e-5f), r2, set(-1.388731625493765e-3f));
    c = hn::MulAdd(c, r2, set(4.166664568298827e-2f));
    c = hn::MulAdd(hn::Mul(c, r2), r2, hn::NegMulAdd(set(0.5f), r2, set(1)));
    // Quarter turns: 1 gives (sin, cos) -> (c, -s), +-2 gives (-s, -c), -1 gives (-c, s).
    const auto odd = hn::Eq(hn::Abs(q), set(1));
    const Vec sin = hn::IfThenElse(odd, c, s), cos = hn::IfThenElse(odd, s, c);
    const auto two = hn::Eq(hn::Abs(q), set(2));
    const auto sin_negative = hn::Or(two, hn::Eq(q, set(-1)));
    const auto cos_negative = hn::Or(two, hn::Eq(q, set(1)));
    const Vec signed_sin = hn::IfThenElse(sin_negative, hn::Neg(sin), sin);
    store(hn::Mul(signed_sin, hn::Set(d, sin_factor)), to.sin + k, width);
    store(hn::Mul(hn::IfThenElse(cos_negative, hn::Neg(cos), cos), hn::Set(d, cos_factor)), to.cos + k, width);
  });
}

HWY_INLINE void make_rotation(const RopeArgs& a, int32_t position, int64_t first, int64_t count, Rotation& to) {
  HWY_ALIGN float remainder[kPairs], quadrant[kPairs];
  reduce_angles(position, a.frequency.ptr<float>() + first, count, remainder, quadrant);
  sin_cos(remainder, quadrant, count, a.inverse ? -a.factor : a.factor, a.factor, to);
  if (a.layout == RopeLayout::interleaved) {
    for (int64_t k = 0; k < count; ++k) {
      to.cos_each[2 * k] = to.cos_each[2 * k + 1] = to.cos[k];
      to.sin_each[2 * k] = -to.sin[k];
      to.sin_each[2 * k + 1] = to.sin[k];
    }
  }
}

template <class T>
HWY_INLINE void rotate_half(const Rotation& r, const T* low, const T* high, T* out_low, T* out_high, int64_t count,
                            bool add) {
  for_vectors(count, [&](int64_t k, auto width) LOAM_LOOP_BODY {
    const Vec x = load(low + k, width), y = load(high + k, width);
    const Vec c = load(r.cos + k, width), s = load(r.sin + k, width);
    store_or_add(hn::NegMulAdd(y, s, hn::Mul(x, c)), out_low + k, add, width);
    store_or_add(hn::MulAdd(x, s, hn::Mul(y, c)), out_high + k, add, width);
  });
}

template <class T>
HWY_INLINE void rotate_interleaved(const Rotation& r, const T* in, T* out, int64_t count, bool add) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; i + kRowLanes <= 2 * count; i += kRowLanes) {
    const Vec x = load(in + i, Full{}), swapped = hn::Shuffle2301(x);
    const Vec c = load(r.cos_each + i, Full{}), s = load(r.sin_each + i, Full{});
    store_or_add(hn::MulAdd(swapped, s, hn::Mul(x, c)), out + i, add, Full{});
  }
#endif
  for (; i < 2 * count; i += 2) {
    const float x = static_cast<float>(in[i]), y = static_cast<float>(in[i + 1]);
    const float c = r.cos[i / 2], s = r.sin[i / 2];
    const float rotated_x = x * c - y * s, rotated_y = x * s + y * c;
    out[i] = T(add ? static_cast<float>(out[i]) + rotated_x : rotated_x);
    out[i + 1] = T(add ? static_cast<float>(out[i + 1]) + rotated_y : rotated_y);
  }
}

// The elements of a head that are not rotated.
template <class T>
HWY_INLINE void pass_rest(const T* in, T* out, int64_t count, bool add) {
  if (add) {
    for_vectors(count,
                [&](int64_t i, auto width) LOAM_LOOP_BODY { store_or_add(load(in + i, width), out + i, true, width); });
  } else if (in != out) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(T));
  }
}

template <class T>
void rope_of(const RopeArgs& a, int64_t begin, int64_t end) {
  const auto [N, H, D] = a.in.dims<3>();
  const int64_t pairs = a.frequency.dim(0);
  Rotation rotation;
  for (int64_t first = 0; first < pairs || first == 0; first += kPairs) {
    const int64_t count = std::min(kPairs, pairs - first);
    for (int64_t n = begin; n < end; ++n) {
      const int32_t position = a.positions.ptr<int32_t>()[n];
      if (n == begin || position != a.positions.ptr<int32_t>()[n - 1]) {
        make_rotation(a, position, first, count, rotation);
      }
      for (int64_t h = 0; h < H; ++h) {
        const T* in = a.in.ptr<T>() + n * a.in.stride(0) + h * a.in.stride(1);
        T* out = a.out.ptr<T>() + n * a.out.stride(0) + h * a.out.stride(1);
        if (a.layout == RopeLayout::half) {
          const int64_t low = first, high = pairs + first;
          rotate_half(rotation, in + low, in + high, out + low, out + high, count, a.accumulate);
        } else {
          rotate_interleaved(rotation, in + 2 * first, out + 2 * first, count, a.accumulate);
        }
        if (first == 0 && 2 * pairs < D) pass_rest(in + 2 * pairs, out + 2 * pairs, D - 2 * pairs, a.accumulate);
      }
    }
  }
}

void rope_tokens(const RopeArgs& a, int64_t begin, int64_t end) {
  visit_float(a.in.dtype, "rope", [&](auto type) { rope_of<decltype(type)>(a, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace {

HWY_EXPORT(rope_tokens);

void rope(const ExecContext& ctx, const RopeArgs& a) {
  const auto [N, H, D] = a.in.dims<3>();
  parallel_for(ctx.threads, N, row_grain(H * D), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(rope_tokens)(a, begin, end);
  });
}

}  // namespace

void register_rope_kernels(KernelTable& table) { table.rope.function = rope; }

}  // namespace loam
#endif
