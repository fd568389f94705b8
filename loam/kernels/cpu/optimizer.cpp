// Sums of squares and AdamW over a group of parameters. Legend: n elements.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/optimizer.cpp"

#include "loam/kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "loam/kernels/cpu/register.h"
#include "loam/kernels/cpu/simd.h"
#include "loam/kernels/kernel_table.h"
// Every instruction set's pass over the rest of this file.
#include "hwy/foreach_target.h"
#include "loam/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

// In f64, in an order that depends on n and the instruction set alone.
template <class T>
HWY_INLINE double squares_of(const T* x, int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;  // as many f32
  constexpr int64_t kStep = hn::MaxLanes(d);
  hn::Vec<decltype(d)> sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * kStep <= n; i += 4 * kStep) {
    for (int u = 0; u < 4; ++u) {
      const auto v = hn::PromoteTo(d, load_f32(half, x + i + u * kStep));
      sums[u] = hn::MulAdd(v, v, sums[u]);
    }
  }
  double rest = 0;
  for (; i < n; ++i) {
    const auto v = static_cast<double>(static_cast<float>(x[i]));
    rest += v * v;
  }
  return rest + hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

void sum_squares_chunk(const View& x, int64_t begin, int64_t end, double* to) {
  *to = x.dtype == DType::f32 ? squares_of(x.ptr<float>() + begin, end - begin)
                              : squares_of(x.ptr<Bf16>() + begin, end - begin);
}

void adamw_chunk(const AdamwArgs& a, const StepState& state, int64_t begin, int64_t end) {
  const double lr = static_cast<double>(state.learning_rate) * a.lr_scale;
  const Vec beta1 = set(a.beta1), one_minus_beta1 = set(static_cast<float>(1 - static_cast<double>(a.beta1)));
  const Vec beta2 = set(a.beta2), one_minus_beta2 = set(static_cast<float>(1 - static_cast<double>(a.beta2)));
  const Vec kept = set(static_cast<float>(1 - lr * a.weight_decay));
  const Vec step = set(static_cast<float>(lr / state.beta1_correction));
  const Vec inverse_root = set(static_cast<float>(1 / std::sqrt(static_cast<double>(state.beta2_correction))));
  float* master = a.master.ptr<float>() + begin;
  const float* gradient = a.gradient.ptr<float>() + begin;
  float *m = a.m.ptr<float>() + begin, *v = a.v.ptr<float>() + begin;
  Bf16* weight = a.weight ? a.weight.ptr<Bf16>() + begin : nullptr;
  for_vectors(end - begin, [&](int64_t i, auto width) LOAM_LOOP_BODY {
    const Vec g = hn::Mul(load(gradient + i, width), set(state.gradient_scale));
    const Vec m_next = hn::MulAdd(beta1, load(m + i, width), hn::Mul(one_minus_beta1, g));
    const Vec v_next = hn::MulAdd(beta2, load(v + i, width), hn::Mul(hn::Mul(one_minus_beta2, g), g));
    const Vec root = hn::MulAdd(hn::Sqrt(v_next), inverse_root, set(a.eps));
    const Vec change = hn::Div(hn::Mul(step, m_next), root);
    const Vec w = hn::Sub(hn::Mul(load(master + i, width), kept), change);
    store(m_next, m + i, width);
    store(v_next, v + i, width);
    store(w, master + i, width);
    if (weight) store(w, weight + i, width);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace {

HWY_EXPORT(sum_squares_chunk);
HWY_EXPORT(adamw_chunk);

void sum_squares(const ExecContext& ctx, const SumSquaresArgs& a) {
  constexpr int64_t kChunk = 16384;
  const int64_t n = a.x.numel(), chunks = (n + kChunk - 1) / kChunk;
  const Tensor partials = ctx.empty({chunks, 8}, DType::u8, MemoryKind::workspace);  // of one f64 each
  auto* sums = static_cast<double*>(partials.storage()->data());
  parallel_for(ctx.threads, chunks, 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      HWY_DYNAMIC_DISPATCH(sum_squares_chunk)(a.x, c * kChunk, std::min(n, (c + 1) * kChunk), sums + c);
    }
  });
  for (int64_t c = 0; c < chunks; ++c) *a.out += sums[c];
}

void adamw(const ExecContext& ctx, const AdamwArgs& a) {
  LOAM_CHECK(ctx.step != nullptr, "adamw: the context has no step state");
  const StepState& state = *ctx.step;
  if (state.skip != 0) return;
  constexpr int64_t kUnit = 64;  // elements: whole cache lines of every array
  const int64_t n = a.master.numel();
  parallel_for(ctx.threads, (n + kUnit - 1) / kUnit, 64, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(adamw_chunk)(a, state, begin * kUnit, std::min(end * kUnit, n));
  });
}

}  // namespace

void register_optimizer_kernels(KernelTable& table) {
  table.sum_squares.function = sum_squares;
  table.adamw.function = adamw;
}

}  // namespace loam
#endif
