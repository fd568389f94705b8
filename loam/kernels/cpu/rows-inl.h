// Loops and sums over rows of any float dtype, in vectors of f32. Included once for each instruction set, after
// hwy/foreach_target.h.

#if defined(LOAM_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOAM_KERNELS_CPU_ROWS_INL_H_
#undef LOAM_KERNELS_CPU_ROWS_INL_H_
#else
#define LOAM_KERNELS_CPU_ROWS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "loam/kernels/cpu/simd-inl.h"

// For the lambdas below: compiled for the instruction set at hand, and always part of the loop that calls them.
#ifndef LOAM_LOOP_BODY
#define LOAM_LOOP_BODY HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;

inline constexpr int64_t kRowLanes = hn::MaxLanes(F32());

HWY_INLINE Vec set(float value) { return hn::Set(F32(), value); }
HWY_INLINE Vec exp(Vec x) { return exp_f32(F32(), x); }
HWY_INLINE Vec at_most(Vec x, float bound) { return at_most(F32(), x, bound); }
HWY_INLINE Vec at_least(Vec x, float bound) { return at_least(F32(), x, bound); }

// Which lanes of a row's vector exist: all, or at the end of a row the first few. Missing lanes load as 0 and are not
// stored.
struct Full {};
struct Part {
  int64_t lanes;
};

template <class T>
HWY_INLINE Vec load(const T* from, Full) {
  return load_f32(F32(), from);
}
template <class T>
HWY_INLINE Vec load(const T* from, Part part) {
  HWY_ALIGN T lanes[kRowLanes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(part.lanes) * sizeof(T));
  return load(lanes, Full{});
}

template <class T>
HWY_INLINE void store(Vec v, T* to, Full) {
  store_f32(F32(), v, to);
}
template <class T>
HWY_INLINE void store(Vec v, T* to, Part part) {
  HWY_ALIGN T lanes[kRowLanes];
  store(v, lanes, Full{});
  std::memcpy(to, lanes, static_cast<size_t>(part.lanes) * sizeof(T));
}

// Writes v, or adds it to what is there.
template <class T, class Width>
HWY_INLINE void store_or_add(Vec v, T* to, bool add, Width width) {
  store(add ? hn::Add(load(to, width), v) : v, to, width);
}

// body(i, width) for every vector of a row of n elements, from the left.
template <class Body>
HWY_INLINE void for_vectors(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kRowLanes <= n; i += kRowLanes) body(i, Full{});
  if (i < n) body(i, Part{n - i});
}

template <int kCount>
struct Sums {
  float value[kCount];
};

// Sums over a row: term(i, width, sums) adds its vectors to sums[0 .. kCount). The order of addition depends on n and
// the instruction set alone. Missing lanes of the last vector must add 0.
template <int kCount, class Term>
HWY_INLINE Sums<kCount> row_sums(int64_t n, Term&& term) {
  constexpr int kUnroll = 4;
  Vec sums[kUnroll][kCount];
  for (int u = 0; u < kUnroll; ++u) {
    for (int k = 0; k < kCount; ++k) sums[u][k] = hn::Zero(F32());
  }
  int64_t i = 0;
  for (; i + kUnroll * kRowLanes <= n; i += kUnroll * kRowLanes) {
    term(i, Full{}, sums[0]);
    term(i + kRowLanes, Full{}, sums[1]);
    term(i + 2 * kRowLanes, Full{}, sums[2]);
    term(i + 3 * kRowLanes, Full{}, sums[3]);
  }
  for (; i + kRowLanes <= n; i += kRowLanes) term(i, Full{}, sums[0]);
  if (i < n) term(i, Part{n - i}, sums[1]);
  Sums<kCount> result;
  for (int k = 0; k < kCount; ++k) {
    const Vec all = hn::Add(hn::Add(sums[0][k], sums[1][k]), hn::Add(sums[2][k], sums[3][k]));
    result.value[k] = hn::GetLane(hn::SumOfLanes(F32(), all));
  }
  return result;
}

// Lanes that exist keep their value, the others become `other`.
HWY_INLINE Vec keep(Vec v, Full, float) { return v; }
HWY_INLINE Vec keep(Vec v, Part part, float other) {
  return hn::IfThenElse(hn::FirstN(F32(), static_cast<size_t>(part.lanes)), v, set(other));
}

// to[c] (+)= sum of rows from[n][c] over n in order, for c of [begin, end).
template <class T>
HWY_INLINE void sum_columns(const T* from, int64_t rows, int64_t stride, float* to, bool add, int64_t begin,
                            int64_t end) {
  for_vectors(end - begin, [&](int64_t i, auto width) LOAM_LOOP_BODY {
    const T* column = from + begin + i;
    Vec sum = hn::Zero(F32());
    for (int64_t n = 0; n < rows; ++n) sum = hn::Add(sum, load(column + n * stride, width));
    store_or_add(sum, to + begin + i, add, width);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#endif  // LOAM_KERNELS_CPU_ROWS_INL_H_
