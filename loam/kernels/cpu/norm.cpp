// RMSNorm and LayerNorm. A row is read from memory once: the second sweep over it finds it in the nearest cache.
// Legend: N rows, C width.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/norm.cpp"

#include "loam/kernels/norm.h"

#include <hwy/cache_control.h>

#include <cmath>

#include "loam/kernels/cpu/register.h"
#include "loam/kernels/cpu/row_blocks.h"
#include "loam/kernels/cpu/simd.h"
#include "loam/kernels/grouped_rows.h"
#include "loam/kernels/kernel_table.h"
// Every instruction set's pass over the rest of this file.
#include "hwy/foreach_target.h"
#include "loam/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

template <class T>
void rms_norm_fwd_of(const RmsNormFwdArgs& a, int64_t begin, int64_t end) {
  const GroupedRows in = grouped_rows(a.x, "rms_norm"), out = grouped_rows(a.out, "rms_norm");
  const int64_t C = in.cols;
  const float* weight = a.weight.ptr<float>();
  for (int64_t n = begin; n < end; ++n) {
    const T* x = a.x.ptr<T>() + in.at(n);
    T* y = a.out.ptr<T>() + out.at(n);
    const float squares = row_sums<1>(C, [&](int64_t i, auto width, Vec* sum) LOAM_LOOP_BODY {
                            const Vec v = load(x + i, width);
                            sum[0] = hn::MulAdd(v, v, sum[0]);
                          }).value[0];
    const float rstd = 1 / std::sqrt(squares / static_cast<float>(C) + a.eps);
    for_vectors(C, [&](int64_t i, auto width) LOAM_LOOP_BODY {
      store(hn::Mul(hn::Mul(load(x + i, width), set(rstd)), load(weight + i, width)), y + i, width);
    });
    if (a.rstd) a.rstd.ptr<float>()[n] = rstd;
  }
}

// d_weight: the partial sum of these rows, or null.
template <class T>
void rms_norm_bwd_of(const RmsNormBwdArgs& a, int64_t begin, int64_t end, float* d_weight) {
  const GroupedRows in = grouped_rows(a.x, "rms_norm"), grad = grouped_rows(a.d_out, "rms_norm");
  const GroupedRows out = a.d_x ? grouped_rows(a.d_x, "rms_norm") : GroupedRows{};
  const int64_t C = in.cols;
  const float* weight = a.weight.ptr<float>();
  for (int64_t n = begin; n < end; ++n) {
    const T* x = a.x.ptr<T>() + in.at(n);
    const T* d_y = a.d_out.ptr<T>() + grad.at(n);
    T* d_x = a.d_x ? a.d_x.ptr<T>() + out.at(n) : nullptr;
    const float rstd = a.rstd.ptr<float>()[n];
    const Vec r = set(rstd);
    Vec mean_gh = hn::Zero(F32());
    if (d_x) {
      const float gx = row_sums<1>(C, [&](int64_t i, auto width, Vec* sum) LOAM_LOOP_BODY {
                         const Vec g = hn::Mul(load(d_y + i, width), load(weight + i, width));
                         sum[0] = hn::MulAdd(g, load(x + i, width), sum[0]);
                       }).value[0];
      mean_gh = set(gx * rstd / static_cast<float>(C));
    }
    for_vectors(C, [&](int64_t i, auto width) LOAM_LOOP_BODY {
      const Vec dy = load(d_y + i, width), h = hn::Mul(load(x + i, width), r);
      if (d_x) {
        const Vec g = hn::Mul(dy, load(weight + i, width));
        store_or_add(hn::Mul(r, hn::NegMulAdd(h, mean_gh, g)), d_x + i, a.accumulate_x, width);
      }
      if (d_weight) store_or_add(hn::Mul(dy, h), d_weight + i, n > begin, width);
    });
  }
}

template <class T>
void layer_norm_fwd_of(const LayerNormFwdArgs& a, int64_t begin, int64_t end) {
  const GroupedRows in = grouped_rows(a.x, "layer_norm"), out = grouped_rows(a.out, "layer_norm");
  const int64_t C = in.cols;
  const float* weight = a.weight.ptr<float>();
  const float* bias = a.bias ? a.bias.ptr<float>() : nullptr;
  for (int64_t n = begin; n < end; ++n) {
    const T* x = a.x.ptr<T>() + in.at(n);
    T* y = a.out.ptr<T>() + out.at(n);
    const float mean = row_sums<1>(C, [&](int64_t i, auto width, Vec* sum)
                                          LOAM_LOOP_BODY { sum[0] = hn::Add(sum[0], load(x + i, width)); })
                           .value[0] /
                       static_cast<float>(C);
    const Vec m = set(mean);
    const T* next = a.x.ptr<T>() + in.at(n + 1);
    const float squares = row_sums<1>(C, [&](int64_t i, auto width, Vec* sum) LOAM_LOOP_BODY {
                            hwy::Prefetch(next + i);  // else memory rests while this row is in the cache
                            const Vec v = hn::Sub(keep(load(x + i, width), width, mean), m);
                            sum[0] = hn::MulAdd(v, v, sum[0]);
                          }).value[0];
    const float rstd = 1 / std::sqrt(squares / static_cast<float>(C) + a.eps);
    const Vec r = set(rstd);
    for_vectors(C, [&](int64_t i, auto width) LOAM_LOOP_BODY {
      const Vec h = hn::Mul(hn::Sub(load(x + i, width), m), r);
      const Vec b = bias ? load(bias + i, width) : hn::Zero(F32());
      store(hn::MulAdd(h, load(weight + i, width), b), y + i, width);
    });
    if (a.mean) a.mean.ptr<float>()[n] = mean;
    if (a.rstd) a.rstd.ptr<float>()[n] = rstd;
  }
}

// d_weight, d_bias: the partial sums of these rows, or null.
template <class T>
void layer_norm_bwd_of(const LayerNormBwdArgs& a, int64_t begin, int64_t end, float* d_weight, float* d_bias) {
  const GroupedRows in = grouped_rows(a.x, "layer_norm"), grad = grouped_rows(a.d_out, "layer_norm");
  const GroupedRows out = a.d_x ? grouped_rows(a.d_x, "layer_norm") : GroupedRows{};
  const int64_t C = in.cols;
  const float* weight = a.weight.ptr<float>();
  for (int64_t n = begin; n < end; ++n) {
    const T* x = a.x.ptr<T>() + in.at(n);
    const T* d_y = a.d_out.ptr<T>() + grad.at(n);
    T* d_x = a.d_x ? a.d_x.ptr<T>() + out.at(n) : nullptr;
    const Vec m = set(a.mean.ptr<float>()[n]), r = set(a.rstd.ptr<float>()[n]);
    Vec mean_g = hn::Zero(F32()), mean_gh = hn::Zero(F32());
    if (d_x) {
      const auto sums = row_sums<2>(C, [&](int64_t i, auto width, Vec* sum) LOAM_LOOP_BODY {
        const Vec g = hn::Mul(load(d_y + i, width), load(weight + i, width));
        sum[0] = hn::Add(sum[0], g);
        sum[1] = hn::MulAdd(g, hn::Mul(hn::Sub(load(x + i, width), m), r), sum[1]);
      });
      mean_g = set(sums.value[0] / static_cast<float>(C));
      mean_gh = set(sums.value[1] / static_cast<float>(C));
    }
    for_vectors(C, [&](int64_t i, auto width) LOAM_LOOP_BODY {
      const Vec dy = load(d_y + i, width), h = hn::Mul(hn::Sub(load(x + i, width), m), r);
      if (d_x) {
        const Vec g = hn::Sub(hn::Mul(dy, load(weight + i, width)), mean_g);
        store_or_add(hn::Mul(r, hn::NegMulAdd(h, mean_gh, g)), d_x + i, a.accumulate_x, width);
      }
      if (d_weight) store_or_add(hn::Mul(dy, h), d_weight + i, n > begin, width);
      if (d_bias) store_or_add(dy, d_bias + i, n > begin, width);
    });
  }
}

void rms_norm_fwd_rows(const RmsNormFwdArgs& a, int64_t begin, int64_t end) {
  visit_float(a.x.dtype, "rms_norm", [&](auto type) { rms_norm_fwd_of<decltype(type)>(a, begin, end); });
}
void rms_norm_bwd_rows(const RmsNormBwdArgs& a, int64_t begin, int64_t end, float* d_weight) {
  visit_float(a.x.dtype, "rms_norm", [&](auto type) { rms_norm_bwd_of<decltype(type)>(a, begin, end, d_weight); });
}
void layer_norm_fwd_rows(const LayerNormFwdArgs& a, int64_t begin, int64_t end) {
  visit_float(a.x.dtype, "layer_norm", [&](auto type) { layer_norm_fwd_of<decltype(type)>(a, begin, end); });
}
void layer_norm_bwd_rows(const LayerNormBwdArgs& a, int64_t begin, int64_t end, float* d_weight, float* d_bias) {
  visit_float(a.x.dtype, "layer_norm",
              [&](auto type) { layer_norm_bwd_of<decltype(type)>(a, begin, end, d_weight, d_bias); });
}
void sum_partials(const float* partials, int64_t count, int64_t C, float* out, bool add) {
  sum_columns(partials, count, C, out, add, 0, C);
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace {

HWY_EXPORT(rms_norm_fwd_rows);
HWY_EXPORT(rms_norm_bwd_rows);
HWY_EXPORT(layer_norm_fwd_rows);
HWY_EXPORT(layer_norm_bwd_rows);
HWY_EXPORT(sum_partials);

// One row of partial sums for each block of rows; absent when the gradient is.
Tensor partial_sums(const ExecContext& ctx, const View& gradient, const RowBlocks& blocks, int64_t C) {
  return gradient ? ctx.empty({blocks.count, C}, DType::f32, MemoryKind::workspace) : Tensor();
}
float* partial_of(const Tensor& partials, int64_t block, int64_t C) {
  return partials ? partials.data<float>() + block * C : nullptr;
}
void add_up(const Tensor& partials, const View& gradient, const RowBlocks& blocks, int64_t C, bool add) {
  if (!gradient) return;
  HWY_DYNAMIC_DISPATCH(sum_partials)(partials.data<float>(), blocks.count, C, gradient.ptr<float>(), add);
}

void rms_norm_fwd(const ExecContext& ctx, const RmsNormFwdArgs& a) {
  each_row(ctx, grouped_rows(a.x, "rms_norm"), HWY_DYNAMIC_DISPATCH(rms_norm_fwd_rows), a);
}

void rms_norm_bwd(const ExecContext& ctx, const RmsNormBwdArgs& a) {
  const GroupedRows x = grouped_rows(a.x, "rms_norm");
  const RowBlocks blocks(x.rows);
  const Tensor d_weight = partial_sums(ctx, a.d_weight, blocks, x.cols);
  parallel_for(ctx.threads, blocks.count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      HWY_DYNAMIC_DISPATCH(rms_norm_bwd_rows)(a, blocks.begin(b), blocks.end(b), partial_of(d_weight, b, x.cols));
    }
  });
  add_up(d_weight, a.d_weight, blocks, x.cols, a.accumulate_weight);
}

void layer_norm_fwd(const ExecContext& ctx, const LayerNormFwdArgs& a) {
  each_row(ctx, grouped_rows(a.x, "layer_norm"), HWY_DYNAMIC_DISPATCH(layer_norm_fwd_rows), a);
}

void layer_norm_bwd(const ExecContext& ctx, const LayerNormBwdArgs& a) {
  const GroupedRows x = grouped_rows(a.x, "layer_norm");
  const RowBlocks blocks(x.rows);
  const Tensor d_weight = partial_sums(ctx, a.d_weight, blocks, x.cols);
  const Tensor d_bias = partial_sums(ctx, a.d_bias, blocks, x.cols);
  parallel_for(ctx.threads, blocks.count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      HWY_DYNAMIC_DISPATCH(layer_norm_bwd_rows)
      (a, blocks.begin(b), blocks.end(b), partial_of(d_weight, b, x.cols), partial_of(d_bias, b, x.cols));
    }
  });
  add_up(d_weight, a.d_weight, blocks, x.cols, a.accumulate_weight);
  add_up(d_bias, a.d_bias, blocks, x.cols, a.accumulate_weight);
}

}  // namespace

void register_norm_kernels(KernelTable& table) {
  table.rms_norm_fwd.function = rms_norm_fwd;
  table.rms_norm_bwd.function = rms_norm_bwd;
  table.layer_norm_fwd.function = layer_norm_fwd;
  table.layer_norm_bwd.function = layer_norm_bwd;
}

}  // namespace loam
#endif
