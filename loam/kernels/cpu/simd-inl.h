// Vector helpers shared by the kernels: f32 lanes loaded from and stored to memory of any float dtype, and exp.
// Included once for each instruction set, after hwy/foreach_target.h; see the Highway documentation on "-inl.h" files.
#if defined(LOAM_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOAM_KERNELS_CPU_SIMD_INL_H_
#undef LOAM_KERNELS_CPU_SIMD_INL_H_
#else
#define LOAM_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include "loam/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The bits of Lanes(d) elements of 16 bits, each in the lower half of a lane.
template <class D, class T>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> load_16_bits(D, const T* p) {
  const hn::Rebind<uint16_t, D> d16;
  return hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
}
template <class D, class T>
HWY_INLINE void store_16_bits(D, hn::Vec<hn::RebindToUnsigned<D>> bits, T* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<int16_t, D> di16;
  const hn::RebindToSigned<D> di;
  // Values fit 16 bits, so sign-extended they pass the saturating conversion unchanged.
  const auto low = hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(di, bits)));
  hn::StoreU(hn::BitCast(d16, hn::DemoteTo(di16, low)), d16, reinterpret_cast<uint16_t*>(p));
}

// Loads Lanes(d) elements as f32.
template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const Bf16* p) {
  return hn::BitCast(d, hn::ShiftLeft<16>(load_16_bits(d, p)));
}
template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const F16* p) {
#if HWY_TARGET <= HWY_AVX2  // these have an instruction for it; the others do what F16 does
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di;
  const auto bits = load_16_bits(d, p);
  const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(d32, 0x7FFFu)));
  const auto up = hn::Set(di, 112 << 23), shifted = hn::Add(hn::ShiftLeft<13>(magnitude), up);
  const auto large = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7BFF)), hn::Add(shifted, up), shifted);
  const auto multiple = hn::BitCast(d, hn::Add(magnitude, hn::Set(di, 0x3F000000)));
  const auto small = hn::BitCast(di, hn::Sub(multiple, hn::Set(d, 0.5f)));
  const auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x0400)), small, large);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000u)));
  return hn::BitCast(d, hn::Or(hn::BitCast(d32, value), sign));
#endif
}

// Stores Lanes(d) elements; to bf16 and f16 with rounding to nearest, ties to even, as their constructors do.
template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, float* p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, Bf16* p) {
  const hn::RebindToUnsigned<D> d32;
  const auto u = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(d32, 1u));
  const auto rounded = hn::Add(u, hn::Add(odd, hn::Set(d32, 0x7FFFu)));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  store_16_bits(d, hn::ShiftRight<16>(hn::IfThenElse(is_nan, hn::Or(u, hn::Set(d32, 0x00400000u)), rounded)), p);
}
template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, F16* p) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
#else
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di;
  const auto u = hn::BitCast(d32, v);
  const auto magnitude = hn::BitCast(di, hn::And(u, hn::Set(d32, 0x7FFFFFFFu)));
  const auto cut = hn::ShiftRight<13>(magnitude), odd = hn::And(cut, hn::Set(di, 1));
  const auto rounded = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(di, 0xFFF))));
  const auto large = hn::Min(hn::Sub(rounded, hn::Set(di, 112 << 10)), hn::Set(di, 0x7C00));
  const auto multiple = hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f)));
  const auto small = hn::Sub(multiple, hn::Set(di, 0x3F000000));
  const auto number = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), small, large);
  const auto nan = hn::Or(hn::And(cut, hn::Set(di, 0x3FF)), hn::Set(di, 0x7E00));
  const auto value = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), nan, number);
  store_16_bits(d, hn::Or(hn::BitCast(d32, value), hn::And(hn::ShiftRight<16>(u), hn::Set(d32, 0x8000u))), p);
#endif
}

// min(x, bound) and max(x, bound) that are NaN where x is. The vector instructions give their second operand where
// either is NaN; Highway's one-lane code gives the operand that is a number.
template <class D>
HWY_INLINE hn::Vec<D> at_most(D d, hn::Vec<D> x, float bound) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, bound)), hn::Set(d, bound), x);
#else
  return hn::Min(hn::Set(d, bound), x);
#endif
}
template <class D>
HWY_INLINE hn::Vec<D> at_least(D d, hn::Vec<D> x, float bound) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, bound)), hn::Set(d, bound), x);
#else
  return hn::Max(hn::Set(d, bound), x);
#endif
}

// exp(x) with a relative error below 2e-7 for x in [-86.9, 88.7]; 0 below (also for -inf), +inf above, NaN for NaN.
// Range reduction by ln 2 in two parts (Cody and Waite), then a minimax polynomial of degree 6 on [-ln2/2, ln2/2]
// (Cephes).
template <class D>
HWY_INLINE hn::Vec<D> exp_f32(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto clamped = at_least(d, at_most(d, x, 89.0f), -87.3f);
  // Adding 1.5 * 2^23 leaves n = round(x / ln 2) in the low bits of the sum; 126 more make it the exponent field of
  // 2^(n - 1), which is 0 for the lowest n and finite for the highest.
  const auto shift = hn::Set(d, 12582912.0f + 126.0f);
  const auto shifted = hn::MulAdd(clamped, hn::Set(d, 1.44269504088896341f), shift);
  const auto half_scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  const auto n = hn::Sub(shifted, shift);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  const auto half = hn::Mul(p, half_scale);
  return hn::Add(half, half);
}

// tanh x = (1 - e^-2|x|) / (1 + e^-2|x|), and for small |x|, where that cancels, its series up to x^9: relative error
// below 5e-7. NaN for NaN.
template <class D>
HWY_INLINE hn::Vec<D> tanh_f32(D d, hn::Vec<D> x) {
  const auto a = at_most(d, hn::Abs(x), 15.0f), a2 = hn::Mul(a, a), one = hn::Set(d, 1.0f);
  const auto e = exp_f32(d, hn::Mul(hn::Set(d, -2.0f), a));
  const auto large = hn::Div(hn::Sub(one, e), hn::Add(one, e));
  auto p = hn::MulAdd(hn::Set(d, 62.0f / 2835), a2, hn::Set(d, -17.0f / 315));
  p = hn::MulAdd(p, a2, hn::Set(d, 2.0f / 15));
  p = hn::MulAdd(p, a2, hn::Set(d, -1.0f / 3));
  const auto small = hn::MulAdd(hn::Mul(p, a2), a, a);
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.2f)), small, large), x);
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#endif  // LOAM_KERNELS_CPU_SIMD_INL_H_
