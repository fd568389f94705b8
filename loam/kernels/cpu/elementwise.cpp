// Fill, copy, add, scale and the sum over rows.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/elementwise.cpp"

#include "loam/kernels/elementwise.h"

#include <cstring>

#include "loam/kernels/cpu/register.h"
#include "loam/kernels/cpu/row_blocks.h"
#include "loam/kernels/cpu/simd.h"
#include "loam/kernels/cpu/strided.h"
#include "loam/kernels/kernel_table.h"
// Every instruction set's pass over the rest of this file.
#include "hwy/foreach_target.h"
#include "loam/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

// Calls f with the pointer in its element type.
template <class F>
void typed(DType dtype, void* p, F&& f) {
  visit_float(dtype, "elementwise", [&](auto type) { f(static_cast<decltype(type)*>(p)); });
}

template <class Out>
void fill_of(Out* out, float value, int64_t n) {
  for_vectors(n, [&](int64_t i, auto width) LOAM_LOOP_BODY { store(set(value), out + i, width); });
}
template <class In, class Out>
void copy_of(const In* in, Out* out, bool add, int64_t n) {
  for_vectors(n, [&](int64_t i, auto width) LOAM_LOOP_BODY { store_or_add(load(in + i, width), out + i, add, width); });
}
template <class T>
void add_of(const T* a, const T* b, T* out, int64_t n) {
  for_vectors(n, [&](int64_t i, auto width)
                     LOAM_LOOP_BODY { store(hn::Add(load(a + i, width), load(b + i, width)), out + i, width); });
}
template <class T>
void scale_of(const T* in, float factor, T* out, int64_t n) {
  for_vectors(n, [&](int64_t i, auto width)
                     LOAM_LOOP_BODY { store(hn::Mul(load(in + i, width), set(factor)), out + i, width); });
}
template <class In>
void sum_of(const In* from, int64_t rows, int64_t stride, float* to, bool add, int64_t begin, int64_t end) {
  sum_columns(from, rows, stride, to, add, begin, end);
}

void fill_row(DType dtype, void* out, float value, int64_t n) {
  typed(dtype, out, [&](auto* o) { fill_of(o, value, n); });
}
void copy_row(DType in_type, void* in, DType out_type, void* out, bool add, int64_t n) {
  typed(in_type, in, [&](auto* x) { typed(out_type, out, [&](auto* o) { copy_of(x, o, add, n); }); });
}
void add_row(DType dtype, void* a, void* b, void* out, int64_t n) {
  typed(dtype, out, [&]<class T>(T* o) { add_of(static_cast<T*>(a), static_cast<T*>(b), o, n); });
}
void scale_row(DType dtype, void* in, float factor, void* out, int64_t n) {
  typed(dtype, out, [&]<class T>(T* o) { scale_of(static_cast<T*>(in), factor, o, n); });
}
// to[c] (+)= the sum of `rows` rows, c of [begin, end).
void sum_rows_part(DType dtype, void* from, int64_t rows, int64_t stride, float* to, bool add, int64_t begin,
                   int64_t end) {
  typed(dtype, from, [&](auto* x) { sum_of(x, rows, stride, to, add, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace {

HWY_EXPORT(fill_row);
HWY_EXPORT(copy_row);
HWY_EXPORT(add_row);
HWY_EXPORT(scale_row);
HWY_EXPORT(sum_rows_part);

constexpr int64_t kGrain = 16384;  // elements worth a thread

void check_float(const char* kernel, const View& v) {
  LOAM_CHECK(is_float(v.dtype), "{}: {} is not f32, bf16 or f16", kernel, dtype_name(v.dtype));
}

// Elements that lie apart, one by one.
float get(DType dtype, const std::byte* p, int64_t i) {
  return visit_float(dtype, "elementwise",
                     [&](auto type) { return static_cast<float>(reinterpret_cast<const decltype(type)*>(p)[i]); });
}
void put(DType dtype, std::byte* p, int64_t i, float value) {
  visit_float(dtype, "elementwise",
              [&](auto type) { reinterpret_cast<decltype(type)*>(p)[i] = decltype(type)(value); });
}

template <class T>
void fill_as(const ExecContext& ctx, const FillArgs& a) {
  const Walk<1> w({a.out});
  walk(ctx.threads, w, kGrain, [&](const auto& p, int64_t n) {
    T* out = reinterpret_cast<T*>(p[0]);
    for (int64_t i = 0; i < n; ++i) out[i * w.row_stride(0)] = static_cast<T>(a.value);
  });
}

void fill(const ExecContext& ctx, const FillArgs& a) {
  switch (a.out.dtype) {
    case DType::i32:
      return fill_as<int32_t>(ctx, a);
    case DType::i64:
      return fill_as<int64_t>(ctx, a);
    case DType::u8:
      return fill_as<uint8_t>(ctx, a);
    case DType::u16:
      return fill_as<uint16_t>(ctx, a);
    case DType::u32:
      return fill_as<uint32_t>(ctx, a);
    default:
      check_float("fill", a.out);
  }
  const Walk<1> w({a.out});
  if (!w.unit_strides()) {
    return visit_float(a.out.dtype, "fill", [&](auto type) { fill_as<decltype(type)>(ctx, a); });
  }
  walk(ctx.threads, w, kGrain, [&](const auto& p, int64_t n) {
    HWY_DYNAMIC_DISPATCH(fill_row)(a.out.dtype, p[0], a.value, n);
  });
}

// The same type on both sides: bits move unchanged.
void copy_bits(const ExecContext& ctx, const CopyArgs& a) {
  const Walk<2> w({a.out, a.in});
  const auto size = static_cast<size_t>(dtype_size(a.in.dtype));
  const int64_t out_step = w.row_stride(0) * static_cast<int64_t>(size);
  const int64_t in_step = w.row_stride(1) * static_cast<int64_t>(size);
  walk(ctx.threads, w, kGrain, [&](const auto& p, int64_t n) {
    if (w.unit_strides()) {
      std::memcpy(p[0], p[1], static_cast<size_t>(n) * size);
    } else {
      for (int64_t i = 0; i < n; ++i) std::memcpy(p[0] + i * out_step, p[1] + i * in_step, size);
    }
  });
}

void copy(const ExecContext& ctx, const CopyArgs& a) {
  if (a.in.dtype == a.out.dtype && !a.accumulate) return copy_bits(ctx, a);
  LOAM_CHECK(is_float(a.in.dtype) && is_float(a.out.dtype), "copy: no conversion from {} to {}{}",
             dtype_name(a.in.dtype), dtype_name(a.out.dtype), a.accumulate ? " that adds" : "");
  const Walk<2> w({a.out, a.in});
  walk(ctx.threads, w, kGrain, [&](const auto& p, int64_t n) {
    if (w.unit_strides()) {
      HWY_DYNAMIC_DISPATCH(copy_row)(a.in.dtype, p[1], a.out.dtype, p[0], a.accumulate, n);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        const float value = get(a.in.dtype, p[1], i * w.row_stride(1));
        const int64_t at = i * w.row_stride(0);
        put(a.out.dtype, p[0], at, a.accumulate ? get(a.out.dtype, p[0], at) + value : value);
      }
    }
  });
}

void add(const ExecContext& ctx, const AddArgs& a) {
  for (const View* v : {&a.a, &a.b, &a.out}) check_float("add", *v);
  const bool one_type = a.a.dtype == a.out.dtype && a.b.dtype == a.out.dtype;
  const Walk<3> w({a.out, a.a, a.b});
  walk(ctx.threads, w, kGrain, [&](const auto& p, int64_t n) {
    if (w.unit_strides() && one_type) {
      HWY_DYNAMIC_DISPATCH(add_row)(a.out.dtype, p[1], p[2], p[0], n);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        const float sum = get(a.a.dtype, p[1], i * w.row_stride(1)) + get(a.b.dtype, p[2], i * w.row_stride(2));
        put(a.out.dtype, p[0], i * w.row_stride(0), sum);
      }
    }
  });
}

void scale(const ExecContext& ctx, const ScaleArgs& a) {
  for (const View* v : {&a.in, &a.out}) check_float("scale", *v);
  const Walk<2> w({a.out, a.in});
  walk(ctx.threads, w, kGrain, [&](const auto& p, int64_t n) {
    if (w.unit_strides() && a.in.dtype == a.out.dtype) {
      HWY_DYNAMIC_DISPATCH(scale_row)(a.out.dtype, p[1], a.factor, p[0], n);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        put(a.out.dtype, p[0], i * w.row_stride(0), get(a.in.dtype, p[1], i * w.row_stride(1)) * a.factor);
      }
    }
  });
}

void sum_rows(const ExecContext& ctx, const SumRowsArgs& a) {
  check_float("sum_rows", a.in);
  const Rows in = as_rows(a.in, "sum_rows");
  const int64_t C = in.cols;
  const RowBlocks blocks(in.rows);
  const Tensor partials = ctx.empty({blocks.count, C}, DType::f32, MemoryKind::workspace);
  auto* base = static_cast<std::byte*>(a.in.data);
  parallel_for(ctx.threads, blocks.count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = blocks.begin(b);
      HWY_DYNAMIC_DISPATCH(sum_rows_part)
      (a.in.dtype, base + first * in.stride * dtype_size(a.in.dtype), blocks.end(b) - first, in.stride,
       partials.data<float>() + b * C, false, 0, C);
    }
  });
  HWY_DYNAMIC_DISPATCH(sum_rows_part)
  (DType::f32, partials.data<float>(), blocks.count, C, a.out.ptr<float>(), a.accumulate, 0, C);
}

}  // namespace

void register_elementwise_kernels(KernelTable& table) {
  table.fill.function = fill;
  table.copy.function = copy;
  table.add.function = add;
  table.scale.function = scale;
  table.sum_rows.function = sum_rows;
}

}  // namespace loam
#endif
