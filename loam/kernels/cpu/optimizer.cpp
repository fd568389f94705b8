// Sums of squares and the rules of optimizers over runs of parameters. Legend: n elements.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/optimizer.cpp"

#include "loam/kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "loam/kernels/cpu/orthogonalize.h"
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
double squares_of(const T* x, int64_t n) {
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
  visit_float(x.dtype, "sum_squares",
              [&](auto type) { *to = squares_of(x.ptr<decltype(type)>() + begin, end - begin); });
}

// The copy that the model uses, if there is one.
template <class Width>
HWY_INLINE void store_weight(Vec w, const View& weight, int64_t at, Width width) {
  if (!weight) return;
  weight.dtype == DType::bf16 ? store(w, weight.ptr<Bf16>() + at, width) : store(w, weight.ptr<F16>() + at, width);
}

// rule(i, width, g, w) gives the new parameters; it keeps the state of the rule up to date.
template <class Rule>
HWY_INLINE void update(const UpdateArgs& a, const StepState& state, int64_t begin, int64_t end, Rule&& rule) {
  float* master = a.master.ptr<float>() + begin;
  const float* gradient = a.gradient.ptr<float>() + begin;
  for_vectors(end - begin, [&](int64_t i, auto width) LOAM_LOOP_BODY {
    const Vec w =
        rule(i, width, hn::Mul(load(gradient + i, width), set(state.gradient_scale)), load(master + i, width));
    store(w, master + i, width);
    store_weight(w, a.weight, begin + i, width);
  });
}

HWY_INLINE double rate(const UpdateArgs& a, const StepState& state) {
  return static_cast<double>(state.learning_rate) * a.lr_scale;
}
HWY_INLINE Vec set_rounded(double value) { return set(static_cast<float>(value)); }
HWY_INLINE Vec one_minus(double value) { return set_rounded(1 - value); }
HWY_INLINE float* part(const View& state, int64_t begin) { return state ? state.ptr<float>() + begin : nullptr; }

template <AdamForm kForm>
HWY_INLINE void adam_chunk(const AdamwArgs& a, double c1, double c2, const StepState& state, int64_t begin,
                           int64_t end) {
  constexpr bool kCourse = kForm == AdamForm::course;
  const double lr = rate(a, state), root2 = std::sqrt(c2);
  const Vec beta1 = set_rounded(a.beta1), one_minus_beta1 = one_minus(a.beta1);
  const Vec beta2 = set_rounded(a.beta2), one_minus_beta2 = one_minus(a.beta2);
  const Vec decay = set(a.weight_decay), kept = set_rounded(1 - lr * a.weight_decay);
  const Vec step = set_rounded(lr / c1 * (kCourse ? root2 : 1));
  const Vec inverse_root = set_rounded(kCourse ? 1 : 1 / root2);
  float *m = part(a.m, begin), *v = part(a.v, begin);
  update(a, state, begin, end, [&](int64_t i, auto width, Vec g, Vec w) LOAM_LOOP_BODY {
    if constexpr (kForm == AdamForm::l2) g = hn::MulAdd(decay, w, g);
    const Vec m_next = hn::MulAdd(beta1, load(m + i, width), hn::Mul(one_minus_beta1, g));
    const Vec v_next = hn::MulAdd(beta2, load(v + i, width), hn::Mul(hn::Mul(one_minus_beta2, g), g));
    const Vec root = hn::MulAdd(hn::Sqrt(v_next), inverse_root, set(a.eps));
    const Vec change = hn::Div(hn::Mul(step, m_next), root);
    store(m_next, m + i, width);
    store(v_next, v + i, width);
    if constexpr (kForm == AdamForm::l2) return hn::Sub(w, change);
    if constexpr (kCourse) return hn::Mul(hn::Sub(w, change), kept);
    return hn::Sub(hn::Mul(w, kept), change);
  });
}

void adamw_chunk(const AdamwArgs& a, double c1, double c2, const StepState& state, int64_t begin, int64_t end) {
  switch (a.form) {
    case AdamForm::decoupled:
      return adam_chunk<AdamForm::decoupled>(a, c1, c2, state, begin, end);
    case AdamForm::l2:
      return adam_chunk<AdamForm::l2>(a, c1, c2, state, begin, end);
    case AdamForm::course:
      return adam_chunk<AdamForm::course>(a, c1, c2, state, begin, end);
  }
}

void sgd_chunk(const SgdArgs& a, const StepState& state, int64_t begin, int64_t end) {
  const bool first = state.updates == 0;
  const Vec lr = set_rounded(rate(a, state)), decay = set(a.weight_decay), momentum = set(a.momentum);
  const Vec kept = set(first ? 0 : a.momentum), taken = first ? set(1) : one_minus(a.dampening);
  float* buffer = part(a.buffer, begin);
  update(a, state, begin, end, [&](int64_t i, auto width, Vec g, Vec w) LOAM_LOOP_BODY {
    g = hn::MulAdd(decay, w, g);
    if (buffer) {
      const Vec next = hn::MulAdd(kept, load(buffer + i, width), hn::Mul(taken, g));
      store(next, buffer + i, width);
      g = a.nesterov ? hn::MulAdd(momentum, next, g) : next;
    }
    return hn::NegMulAdd(lr, g, w);
  });
}

void adagrad_chunk(const AdagradArgs& a, const StepState& state, int64_t begin, int64_t end) {
  const Vec lr = set_rounded(rate(a, state)), decay = set(a.weight_decay);
  float* sum = part(a.sum, begin);
  update(a, state, begin, end, [&](int64_t i, auto width, Vec g, Vec w) LOAM_LOOP_BODY {
    g = hn::MulAdd(decay, w, g);
    const Vec next = hn::MulAdd(g, g, load(sum + i, width));
    store(next, sum + i, width);
    return hn::Sub(w, hn::Div(hn::Mul(lr, g), hn::Add(hn::Sqrt(next), set(a.eps))));
  });
}

void rmsprop_chunk(const RmspropArgs& a, const StepState& state, int64_t begin, int64_t end) {
  const Vec lr = set_rounded(rate(a, state)), decay = set(a.weight_decay), momentum = set(a.momentum);
  const Vec alpha = set_rounded(a.alpha), one_minus_alpha = one_minus(a.alpha);
  float *v = part(a.v, begin), *buffer = part(a.buffer, begin);
  update(a, state, begin, end, [&](int64_t i, auto width, Vec g, Vec w) LOAM_LOOP_BODY {
    g = hn::MulAdd(decay, w, g);
    const Vec v_next = hn::MulAdd(alpha, load(v + i, width), hn::Mul(hn::Mul(one_minus_alpha, g), g));
    store(v_next, v + i, width);
    Vec change = hn::Div(g, hn::Add(hn::Sqrt(v_next), set(a.eps)));
    if (buffer) {
      change = hn::MulAdd(momentum, load(buffer + i, width), change);
      store(change, buffer + i, width);
    }
    return hn::NegMulAdd(lr, change, w);
  });
}

void lion_chunk(const LionArgs& a, const StepState& state, int64_t begin, int64_t end) {
  const double step = rate(a, state);
  const Vec lr = set_rounded(step), kept = set_rounded(1 - step * a.weight_decay), zero = set(0);
  const Vec beta1 = set_rounded(a.beta1), one_minus_beta1 = one_minus(a.beta1);
  const Vec beta2 = set_rounded(a.beta2), one_minus_beta2 = one_minus(a.beta2);
  float* m = part(a.m, begin);
  update(a, state, begin, end, [&](int64_t i, auto width, Vec g, Vec w) LOAM_LOOP_BODY {
    const Vec before = load(m + i, width);
    const Vec mean = hn::MulAdd(beta1, before, hn::Mul(one_minus_beta1, g));
    const Vec change = hn::IfThenZeroElse(hn::Eq(mean, zero), hn::CopySign(lr, mean));
    store(hn::MulAdd(beta2, before, hn::Mul(one_minus_beta2, g)), m + i, width);
    return hn::Sub(hn::Mul(w, kept), change);
  });
}

void muon_momentum_chunk(const MuonMomentumArgs& a, const StepState& state, int64_t begin, int64_t end) {
  const Vec momentum = set_rounded(a.momentum), one_minus_momentum = one_minus(a.momentum);
  const float* gradient = part(a.gradient, begin);
  float *m = part(a.m, begin), *out = part(a.out, begin);
  for_vectors(end - begin, [&](int64_t i, auto width) LOAM_LOOP_BODY {
    if (state.skip != 0) return store(set(0), out + i, width);
    const Vec g = hn::Mul(one_minus_momentum, hn::Mul(load(gradient + i, width), set(state.gradient_scale)));
    const Vec next = hn::MulAdd(momentum, load(m + i, width), g);
    store(next, m + i, width);
    store(a.nesterov ? hn::MulAdd(momentum, next, g) : next, out + i, width);
  });
}

void muon_apply_chunk(const MuonApplyArgs& a, const StepState& state, int64_t begin, int64_t end) {
  const double lr = rate(a, state);
  const Vec kept = set_rounded(1 - lr * a.weight_decay), step = set_rounded(lr * a.scale);
  const float* change = part(a.update, begin);
  float* master = part(a.master, begin);
  for_vectors(end - begin, [&](int64_t i, auto width) LOAM_LOOP_BODY {
    const Vec w = hn::NegMulAdd(step, load(change + i, width), hn::Mul(load(master + i, width), kept));
    store(w, master + i, width);
    store_weight(w, a.weight, begin + i, width);
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
HWY_EXPORT(sgd_chunk);
HWY_EXPORT(adagrad_chunk);
HWY_EXPORT(rmsprop_chunk);
HWY_EXPORT(lion_chunk);
HWY_EXPORT(muon_momentum_chunk);
HWY_EXPORT(muon_apply_chunk);

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

// chunk(state, begin, end) for parts of [0, n).
template <class Chunk>
void over_elements(const ExecContext& ctx, const char* name, int64_t n, const Chunk& chunk) {
  LOAM_CHECK(ctx.step != nullptr, "{}: the context has no step state", name);
  constexpr int64_t kUnit = 64;  // elements: whole cache lines of every array
  parallel_for(ctx.threads, (n + kUnit - 1) / kUnit, 64,
               [&](int64_t begin, int64_t end, int) { chunk(*ctx.step, begin * kUnit, std::min(end * kUnit, n)); });
}

template <class Chunk>
void update(const ExecContext& ctx, const char* name, const UpdateArgs& a, const Chunk& chunk) {
  if (ctx.step && ctx.step->skip != 0) return;
  over_elements(ctx, name, a.master.numel(), chunk);
}

void clip(const ExecContext& ctx, const ClipArgs& a) {
  const double norm = std::sqrt(*a.squares);
  if (!std::isfinite(norm) || (a.losses && !std::isfinite(*a.losses))) {
    ctx.step->skip = 1;
  } else if (a.max_norm > 0) {
    ctx.step->gradient_scale *= static_cast<float>(std::min(1.0, a.max_norm / (norm + 1e-6)));
  }
}

void adamw(const ExecContext& ctx, const AdamwArgs& a) {
  const double t = ctx.step ? static_cast<double>(ctx.step->updates) + 1 : 1;
  const double c1 = 1 - std::pow(a.beta1, t), c2 = 1 - std::pow(a.beta2, t);
  update(ctx, "adamw", a, [&](const StepState& state, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(adamw_chunk)(a, c1, c2, state, begin, end);
  });
}

void sgd(const ExecContext& ctx, const SgdArgs& a) {
  update(ctx, "sgd", a, [&](const StepState& state, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(sgd_chunk)(a, state, begin, end);
  });
}

void adagrad(const ExecContext& ctx, const AdagradArgs& a) {
  update(ctx, "adagrad", a, [&](const StepState& state, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(adagrad_chunk)(a, state, begin, end);
  });
}

void rmsprop(const ExecContext& ctx, const RmspropArgs& a) {
  update(ctx, "rmsprop", a, [&](const StepState& state, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rmsprop_chunk)(a, state, begin, end);
  });
}

void lion(const ExecContext& ctx, const LionArgs& a) {
  update(ctx, "lion", a, [&](const StepState& state, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(lion_chunk)(a, state, begin, end);
  });
}

void muon_momentum(const ExecContext& ctx, const MuonMomentumArgs& a) {
  over_elements(ctx, "muon_momentum", a.m.numel(), [&](const StepState& state, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(muon_momentum_chunk)(a, state, begin, end);
  });
}

void muon_apply(const ExecContext& ctx, const MuonApplyArgs& a) {
  update(ctx, "muon_apply", a, [&](const StepState& state, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(muon_apply_chunk)(a, state, begin, end);
  });
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
  table.orthogonalize.function = cpu::orthogonalize;
}

}  // namespace loam
#endif
