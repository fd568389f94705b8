// Softmax statistics, losses and gradients over rows of logits. A row is read once for its maximum and its sum of
// exponentials, by pieces that stay in the nearest cache, and once for its gradient. Legend: N rows, V columns.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/cross_entropy.cpp"

#include "loam/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

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

inline constexpr int64_t kPiece = 2048;  // logits: 8 KiB
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Statistics of the logits seen so far: sum = sum exp(l - max), dot = sum exp(l - max) (l - max).
struct RowStats {
  float max = -kInfinity;
  double sum = 0, dot = 0;
};

template <class T>
HWY_INLINE float row_max(const T* x, int64_t n) {
  Vec most[4] = {set(-kInfinity), set(-kInfinity), set(-kInfinity), set(-kInfinity)};
  int64_t i = 0;
  for (; i + 4 * kRowLanes <= n; i += 4 * kRowLanes) {
    for (int u = 0; u < 4; ++u) most[u] = hn::Max(load(x + i + u * kRowLanes, Full{}), most[u]);
  }
  for (; i + kRowLanes <= n; i += kRowLanes) most[0] = hn::Max(load(x + i, Full{}), most[0]);
  if (i < n) most[1] = hn::Max(keep(load(x + i, Part{n - i}), Part{n - i}, -kInfinity), most[1]);
  const Vec all = hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
  return hn::GetLane(hn::MaxOfLanes(F32(), all));
}

// Max passes over NaN; the sum of exponentials meets every logit and becomes NaN.
template <bool kDot, class T>
void take_row(const T* x, int64_t n, RowStats& stats) {
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const T* piece = x + begin;
    const int64_t count = std::min(kPiece, n - begin);
    const float most = std::max(stats.max, row_max(piece, count));
    if (most > stats.max && stats.sum != 0) {
      const double shift = static_cast<double>(stats.max) - most;  // sums so far are in units of exp(max)
      const double factor = std::exp(shift);
      stats.dot = factor == 0 ? 0 : (stats.dot + stats.sum * shift) * factor;
      stats.sum *= factor;
    }
    stats.max = most;
    const Vec m = set(most == -kInfinity ? 0 : most);  // -inf - -inf is NaN
    constexpr int kSums = kDot ? 2 : 1;
    const auto sums = row_sums<kSums>(count, [&](int64_t i, auto width, Vec* sum) LOAM_LOOP_BODY {
      const Vec shifted = hn::Sub(keep(load(piece + i, width), width, -kInfinity), m);
      const Vec e = exp(shifted);
      sum[0] = hn::Add(sum[0], e);
      if constexpr (kDot) sum[1] = hn::MulAdd(e, at_least(shifted, -200), sum[1]);  // 0 * -inf is NaN
    });
    stats.sum += static_cast<double>(sums.value[0]);
    if constexpr (kDot) stats.dot += static_cast<double>(sums.value[1]);
  }
}

// x[c] <- factor * exp(x[c] - lse), and `at_target` more where c == target (-1: nowhere), times the slope of the cap.
template <class T>
void softmax_gradient(T* x, int64_t n, float lse, float factor, int64_t target, float at_target, float softcap) {
  const float kept = target >= 0 ? static_cast<float>(x[target]) : 0;
  const Vec l = set(lse), f = set(factor), inverse = set(softcap > 0 ? 1 / softcap : 0);
  const auto each = [&](auto capped) HWY_ATTR __attribute__((always_inline)) {
    for_vectors(n, [&](int64_t i, auto width) LOAM_LOOP_BODY {
      const Vec y = load(x + i, width), t = hn::Mul(y, inverse);
      Vec gradient = hn::Mul(exp(hn::Sub(y, l)), f);
      if constexpr (decltype(capped)::value) gradient = hn::Mul(gradient, hn::NegMulAdd(t, t, set(1)));
      store(gradient, x + i, width);
    });
  };
  softcap > 0 ? each(std::true_type()) : each(std::false_type());
  // The sum is taken before rounding to T.
  const float t = softcap > 0 ? kept / softcap : 0;
  if (target >= 0) x[target] = T((factor * std::exp(kept - lse) + at_target) * (1 - t * t));
}

template <class T>
void softcap_of(const SoftcapArgs& a, int64_t begin, int64_t end) {
  const Rows logits = as_rows(a.logits, "softcap");
  const Vec cap = set(a.cap), inverse = set(1 / a.cap);
  for (int64_t n = begin; n < end; ++n) {
    T* x = a.logits.ptr<T>() + n * logits.stride;
    for_vectors(logits.cols, [&](int64_t i, auto width) LOAM_LOOP_BODY {
      store(hn::Mul(tanh_f32(F32(), hn::Mul(load(x + i, width), inverse)), cap), x + i, width);
    });
  }
}

template <class T>
void logit_stats_of(const LogitStatsArgs& a, int64_t begin, int64_t end) {
  const Rows logits = as_rows(a.logits, "logit_stats");
  float *max = a.max.ptr<float>(), *sum = a.sum.ptr<float>(), *dot = a.dot ? a.dot.ptr<float>() : nullptr;
  for (int64_t n = begin; n < end; ++n) {
    const T* x = a.logits.ptr<T>() + n * logits.stride;
    RowStats stats;
    if (!a.first) stats = {max[n], static_cast<double>(sum[n]), dot ? static_cast<double>(dot[n]) : 0};
    dot ? take_row<true>(x, logits.cols, stats) : take_row<false>(x, logits.cols, stats);
    max[n] = stats.max;
    sum[n] = static_cast<float>(stats.sum);
    if (dot) dot[n] = static_cast<float>(stats.dot);
    const int64_t target = a.targets.ptr<int32_t>()[n] - a.begin;
    if (a.first) a.target_logit.ptr<float>()[n] = 0;
    if (target >= 0 && target < logits.cols) a.target_logit.ptr<float>()[n] = static_cast<float>(x[target]);
  }
}

template <class T>
void logit_bwd_of(const LogitBwdArgs& a, int64_t begin, int64_t end) {
  const Rows logits = as_rows(a.logits, "logit_bwd");
  for (int64_t n = begin; n < end; ++n) {
    T* x = a.logits.ptr<T>() + n * logits.stride;
    const int64_t token = a.targets.ptr<int32_t>()[n];
    const float d_logp = token < 0 ? 0 : a.d_logp.ptr<float>()[n];
    const float factor = (a.d_lse ? a.d_lse.ptr<float>()[n] : 0) - d_logp;
    if (factor == 0 && d_logp == 0) {
      std::fill_n(x, logits.cols, T(0.0f));
      continue;
    }
    const int64_t target = token - a.begin;
    const bool inside = token >= 0 && target >= 0 && target < logits.cols;
    softmax_gradient(x, logits.cols, a.lse.ptr<float>()[n], factor, inside ? target : -1, d_logp, a.softcap);
  }
}

template <class T>
void cross_entropy_of(const CrossEntropyRowsArgs& a, int64_t begin, int64_t end) {
  const Rows logits = as_rows(a.logits, "cross_entropy");
  for (int64_t n = begin; n < end; ++n) {
    T* x = a.logits.ptr<T>() + n * logits.stride;
    const int64_t target = a.targets.ptr<int32_t>()[n];
    RowStats stats;
    take_row<false>(x, logits.cols, stats);
    const double log_sum = std::log(stats.sum);
    const auto lse = static_cast<float>(stats.max + log_sum);
    if (a.z_term) a.z_term.ptr<float>()[n] = target < 0 ? 0 : a.z_loss * lse * lse;
    float loss = 0;
    // max - logit first: both may be large where the loss is small.
    if (target >= 0)
      loss = static_cast<float>(static_cast<double>(stats.max) - static_cast<float>(x[target]) + log_sum);
    a.loss.ptr<float>()[n] = loss;
    if (!a.write_gradient) continue;
    if (target < 0) {
      std::fill_n(x, logits.cols, T(0.0f));
    } else {
      softmax_gradient(x, logits.cols, lse, a.scale * (1 + 2 * a.z_loss * lse), target, -a.scale, a.softcap);
    }
  }
}

void logit_stats_rows(const LogitStatsArgs& a, int64_t begin, int64_t end) {
  visit_float(a.logits.dtype, "logit_stats", [&](auto type) { logit_stats_of<decltype(type)>(a, begin, end); });
}
void logit_bwd_rows(const LogitBwdArgs& a, int64_t begin, int64_t end) {
  visit_float(a.logits.dtype, "logit_bwd", [&](auto type) { logit_bwd_of<decltype(type)>(a, begin, end); });
}
void softcap_rows(const SoftcapArgs& a, int64_t begin, int64_t end) {
  visit_float(a.logits.dtype, "softcap", [&](auto type) { softcap_of<decltype(type)>(a, begin, end); });
}
void cross_entropy_some_rows(const CrossEntropyRowsArgs& a, int64_t begin, int64_t end) {
  visit_float(a.logits.dtype, "cross_entropy", [&](auto type) { cross_entropy_of<decltype(type)>(a, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace {

HWY_EXPORT(logit_stats_rows);
HWY_EXPORT(logit_bwd_rows);
HWY_EXPORT(cross_entropy_some_rows);
HWY_EXPORT(softcap_rows);

void logit_stats(const ExecContext& ctx, const LogitStatsArgs& a) {
  each_row(ctx, as_rows(a.logits, "logit_stats"), HWY_DYNAMIC_DISPATCH(logit_stats_rows), a);
}

void logit_bwd(const ExecContext& ctx, const LogitBwdArgs& a) {
  each_row(ctx, as_rows(a.logits, "logit_bwd"), HWY_DYNAMIC_DISPATCH(logit_bwd_rows), a);
}

void cross_entropy_rows(const ExecContext& ctx, const CrossEntropyRowsArgs& args) {
  CrossEntropyRowsArgs a = args;
  if (ctx.step) a.scale *= ctx.step->loss_factor;
  each_row(ctx, as_rows(a.logits, "cross_entropy"), HWY_DYNAMIC_DISPATCH(cross_entropy_some_rows), a);
}

void softcap(const ExecContext& ctx, const SoftcapArgs& a) {
  each_row(ctx, as_rows(a.logits, "softcap"), HWY_DYNAMIC_DISPATCH(softcap_rows), a);
}

}  // namespace

void register_cross_entropy_kernels(KernelTable& table) {
  table.logit_stats.function = logit_stats;
  table.logit_bwd.function = logit_bwd;
  table.cross_entropy_rows.function = cross_entropy_rows;
  table.softcap.function = softcap;
}

}  // namespace loam
#endif
