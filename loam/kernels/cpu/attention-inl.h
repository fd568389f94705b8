// Vector code that the two directions of attention share. Included once for each instruction set.
#if defined(LOAM_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOAM_KERNELS_CPU_ATTENTION_INL_H_
#undef LOAM_KERNELS_CPU_ATTENTION_INL_H_
#else
#define LOAM_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "loam/kernels/cpu/attention_rows.h"
#include "loam/kernels/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace loam::cpu {
namespace HWY_NAMESPACE {

using namespace loam::HWY_NAMESPACE;  // NOLINT: the vector helpers of this instruction set

inline int64_t padded_width(int64_t width) { return (width + kNr - 1) / kNr * kNr; }

// Scores are kept in units of ln 2, so that their exponentials are powers of two.
inline constexpr float kLog2e = 1.44269504088896341f;

// 2^x for x <= 0 or a little above, as in softmax, with a relative error below 2e-7; 0 below -126.5 (also for -inf),
// NaN for NaN. The polynomial of Moshier's Cephes library (exp2f).
HWY_INLINE FloatVec exp2_softmax(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  x = at_least(d, x, -127.0f);
  // Adding 1.5 * 2^23 leaves n = round(x) in the low bits of the sum; 127 more make it the exponent field of 2^n, which
  // is 0 for n = -127.
  const FloatVec shift = hn::Set(d, 12582912.0f + 127.0f);
  const FloatVec shifted = hn::Add(x, shift);
  const FloatVec r = hn::Sub(x, hn::Sub(shifted, shift));
  FloatVec p = hn::MulAdd(hn::Set(d, 1.535336188319500e-4f), r, hn::Set(d, 1.339887440266574e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.618437357674640e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.550332471162809e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.402264791363012e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.931472028550421e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// What score_panels multiplies q.k with.
HWY_INLINE float score_factor(const AttentionLogits& logits) {
  return logits.softcap > 0 ? logits.scale / logits.softcap : logits.scale * kLog2e;
}
HWY_INLINE bool is_plain(const AttentionLogits& logits) { return logits.softcap == 0 && !logits.slopes; }
// Turns scores that score_panels made with alpha = score_factor(logits) into logits in units of ln 2, for keys
// [begin, end) of a tile; `distance` is that of the row's position from the tile's first key. `cap_slope` (or null)
// gets 1 - tanh^2, by which the cap shrinks a gradient.
HWY_INLINE void finish_scores(const AttentionLogits& logits, float alibi, int64_t distance, int64_t begin, int64_t end,
                              float* s, float* cap_slope) {
  const FloatTag d;
  const FloatVec bias = hn::Set(d, alibi * kLog2e), cap = hn::Set(d, logits.softcap * kLog2e);
  for (int64_t j = begin; j < end; j += kLanes) {
    FloatVec x = hn::LoadU(d, s + j);
    if (logits.softcap > 0) {
      const FloatVec t = tanh_f32(d, x);
      if (cap_slope) hn::StoreU(hn::NegMulAdd(t, t, hn::Set(d, 1.0f)), d, cap_slope + j);
      x = hn::Mul(t, cap);
    }
    const FloatVec away = hn::Sub(hn::Set(d, static_cast<float>(distance - j)), hn::Iota(d, 0.0f));
    hn::StoreU(hn::NegMulAdd(bias, away, x), d, s + j);
  }
}

// Copies a row to f32 and fills it up to `padded` with zeros. False if an element is infinite or NaN.
template <class T>
HWY_INLINE bool copy_row(const T* from, int64_t width, int64_t padded, float* to) {
  const FloatTag d;
  FloatVec probe = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const FloatVec v = load_f32(d, from + i);
    probe = hn::MulAdd(v, hn::Zero(d), probe);  // NaN as soon as an element is not finite
    hn::StoreU(v, d, to + i);
  }
  bool finite = hn::AllFalse(d, hn::IsNaN(probe));
  for (; i < width; ++i) {
    to[i] = static_cast<float>(from[i]);
    finite = finite && to[i] * 0.0f == 0.0f;
  }
  for (; i < padded; ++i) to[i] = 0;
  return finite;
}

// Packs keys as panels of kNr keys over D, ready to be the B of rows x keys.
template <class T>
HWY_INLINE void pack_keys(const T* from, int64_t stride, int64_t keys, int64_t width, float* to) {
  for (int64_t j = 0; j < keys; j += kNr, to += kNr * width) {
    pack_along_k(from + j * stride, stride, std::min(kNr, keys - j), width, to, kNr);
  }
}

// c[0:rows, 0:width] += A B over k elements, all in f32; width is a multiple of kNr.
template <Layout kA>
HWY_INLINE void add_product(int64_t rows, int64_t k, TileOperand a, TileOperand b, float* c, int64_t width,
                            float alpha) {
  const TileEnd end{alpha, true, nullptr};
  const int64_t step = kA == Layout::rows ? a.stride : 1;
  for (int64_t r = 0; r < rows; r += kMr) {
    for (int64_t j = 0; j < width; j += kNr) {
      tile_any<kA, Layout::rows>(std::min(kMr, rows - r), k, {a.data + r * step, a.stride}, {b.data + j, b.stride},
                                 c + r * width + j, width, kNr, end);
    }
  }
}

// The same, leaving out every k that `sees(r, k)` denies, so that what stands there (NaN, infinity) has no part in the
// sum. The order of the sum, and with finite numbers its bits, are those of add_product.
template <Layout kA, class Sees>
HWY_NOINLINE void add_product_seen(int64_t rows, int64_t k, TileOperand a, TileOperand b, float* c, int64_t width,
                                   float alpha, const Sees& sees) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < width; j += kLanes) {
      FloatVec sum = hn::Zero(d);
      for (int64_t i = 0; i < k; ++i) {
        if (!sees(r, i)) continue;
        const float ar = kA == Layout::rows ? a.data[r * a.stride + i] : a.data[i * a.stride + r];
        sum = hn::MulAdd(hn::Set(d, ar), hn::LoadU(d, b.data + i * b.stride + j), sum);
      }
      float* out = c + r * width + j;
      hn::StoreU(hn::Add(hn::Mul(hn::Set(d, alpha), sum), hn::LoadU(d, out)), d, out);
    }
  }
}

// s[0:rows, panels] = alpha A K^T for the panels of kNr keys that cover `seen`; s has rows of kTile.
HWY_INLINE void score_panels(int64_t rows, int64_t width, TileOperand a, const float* packed_keys, KeyRange seen,
                             float alpha, float* s) {
  const TileEnd end{alpha, false, nullptr};
  for (int64_t j = seen.begin / kNr * kNr; j < seen.end; j += kNr) {
    tile_any<Layout::rows, Layout::panel>(rows, width, a, {packed_keys + j * width}, s + j, kTile, kNr, end);
  }
}

#if HWY_TARGET != HWY_SCALAR
// What score_panels computes, to the bit, for R rows of A and all `keys` keys, straight from where the keys lie: each
// block of 4 x 4 is transposed in registers. For few rows, where packing would cost more than the product.
template <int R, class T>
HWY_INLINE void score_keys(int64_t width, TileOperand a, const T* key, int64_t stride, int64_t keys, float alpha,
                           float* s) {
  const FloatTag d;
  HWY_ALIGN T rest[kLanes * kMostWidth];
  for (int64_t j = 0; j < keys; j += kLanes, key += kLanes * stride) {
    const T* from = key;
    int64_t from_stride = stride;
    if (keys - j < kLanes) {  // the last few, beside others that are 0
      for (int64_t r = 0; r < kLanes; ++r) {
        T* to = rest + r * width;
        r < keys - j ? void(std::copy_n(key + r * stride, width, to)) : void(std::fill_n(to, width, T(0.0f)));
      }
      from = rest, from_stride = width;
    }
    // Keys of one head lie apart, where the processor does not look ahead by itself.
    for (int64_t r = kLanes; r < 2 * kLanes; ++r) {
      for (int64_t i = 0; i < width; i += kLine) hwy::Prefetch(key + r * stride + i);
    }
    FloatVec sum[R];
    for (int r = 0; r < R; ++r) sum[r] = hn::Zero(d);
    for (int64_t i = 0; i < width; i += 4) {
      FloatVec columns[4];
      load_transposed<kLanes>(from + i, from_stride, columns);
      for (int c = 0; c < 4; ++c) {
        for (int r = 0; r < R; ++r) sum[r] = hn::MulAdd(hn::Set(d, a.data[r * a.stride + i + c]), columns[c], sum[r]);
      }
    }
    for (int r = 0; r < R; ++r) {
      hn::StoreU(hn::MulAdd(hn::Set(d, alpha), sum[r], hn::Zero(d)), d, s + r * kTile + j);
    }
  }
}
#endif

// out[0:R] += p[0:R] V over `keys` keys, to the bit as add_product would, from where the values lie. REQUIRES: width is
// a multiple of kLanes.
template <int R, class T>
HWY_INLINE void add_values(const float* p, const T* value, int64_t stride, int64_t keys, int64_t width, float* out,
                           int64_t out_stride) {
  const FloatTag d;
  const auto columns = [&](int64_t c, auto vectors) HWY_ATTR __attribute__((always_inline)) {
    constexpr int kVectors = decltype(vectors)::value;
    FloatVec sum[R][kVectors];
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
    }
    for (int64_t j = 0; j < keys; ++j) {
      constexpr int64_t kAhead = 8;
      for (int64_t i = 0; i < kVectors * kLanes; i += kLine) hwy::Prefetch(value + (j + kAhead) * stride + c + i);
      for (int v = 0; v < kVectors; ++v) {
        const FloatVec x = load_f32(d, value + j * stride + c + v * kLanes);
        for (int r = 0; r < R; ++r) sum[r][v] = hn::MulAdd(hn::Set(d, p[r * kTile + j]), x, sum[r][v]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        float* to = out + r * out_stride + c + v * kLanes;
        hn::StoreU(hn::Add(sum[r][v], hn::LoadU(d, to)), d, to);
      }
    }
  };
  int64_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes) columns(c, std::integral_constant<int, 4>());
  for (; c < width; c += kLanes) columns(c, std::integral_constant<int, 1>());
}

// Writes a finished row, or adds it to what is there.
template <class T>
HWY_INLINE void finish_row(const float* from, int64_t width, float factor, bool add, T* to) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    FloatVec v = hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor));
    if (add) v = hn::Add(v, load_f32(d, to + i));
    store_f32(d, v, to + i);
  }
  for (; i < width; ++i) {
    const float v = from[i] * factor;
    to[i] = static_cast<T>(add ? v + static_cast<float>(to[i]) : v);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace loam::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOAM_KERNELS_CPU_ATTENTION_INL_H_
