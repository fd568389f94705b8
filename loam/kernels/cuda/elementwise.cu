// Fill, copy, add, scale and the sum over rows.
#include "loam/kernels/elementwise.h"

#include "loam/kernels/cuda/register.h"
#include "loam/kernels/cuda/strided.cuh"
#include "loam/kernels/cuda/sum_rows.h"

namespace loam::cuda {
namespace {

template <class T, int W>
struct Fill {
  T* out;
  T value;
  __device__ void operator()(const std::array<int64_t, 1>& at) const {
    Raw<T, W> raw;
#pragma unroll
    for (int i = 0; i < W; ++i) raw.v[i] = value;
    *reinterpret_cast<Raw<T, W>*>(out + at[0]) = raw;
  }
};

template <class T>
void fill_as(const ExecContext& ctx, const FillArgs& a, T value) {
  const Strided<1> views({a.out});
  for_width(views.width(), [&](auto width) {
    constexpr int W = sizeof(T) > 4 ? 1 : decltype(width)::value;
    for_each_group<W>(ctx, views, "fill", Fill<T, W>{static_cast<T*>(a.out.data), value});
  });
}

void fill(const ExecContext& ctx, const FillArgs& a) {
  switch (a.out.dtype) {
    case DType::f32:
      return fill_as(ctx, a, a.value);
    case DType::bf16:
      return fill_as(ctx, a, Bf16(a.value).bits);
    case DType::f16:
      return fill_as(ctx, a, F16(a.value).bits);
    case DType::i32:
      return fill_as(ctx, a, static_cast<int32_t>(a.value));
    case DType::i64:
      return fill_as(ctx, a, static_cast<int64_t>(a.value));
    case DType::u8:
      return fill_as(ctx, a, static_cast<uint8_t>(a.value));
    case DType::u16:
      return fill_as(ctx, a, static_cast<uint16_t>(a.value));
    case DType::u32:
      return fill_as(ctx, a, static_cast<uint32_t>(a.value));
    default:
      fail(ErrorCode::kInvalidArgument, "fill: {} is not supported", dtype_name(a.out.dtype));
  }
}

template <class T, int W>
struct CopyBits {
  T* out;
  const T* in;
  __device__ void operator()(const std::array<int64_t, 2>& at) const {
    *reinterpret_cast<Raw<T, W>*>(out + at[0]) = *reinterpret_cast<const Raw<T, W>*>(in + at[1]);
  }
};

template <class T>
void copy_bits(const ExecContext& ctx, const CopyArgs& a) {
  const Strided<2> views({a.out, a.in});
  for_width(views.width(), [&](auto width) {
    constexpr int W = sizeof(T) > 4 ? 1 : decltype(width)::value;
    for_each_group<W>(ctx, views, "copy",
                      CopyBits<T, W>{static_cast<T*>(a.out.data), static_cast<const T*>(a.in.data)});
  });
}

// Calls f with the elements of the views: by pointers if all have one type, else as AnyFloat.
template <class F, class... Views>
void for_elements(const char* kernel, const F& f, const View& first, const Views&... rest) {
  if (((rest.dtype == first.dtype) && ...)) {
    return for_float(first.dtype, kernel, [&](auto type) {
      using T = decltype(type);
      f(static_cast<T*>(first.data), static_cast<T*>(rest.data)...);
    });
  }
  for (const DType dtype : {first.dtype, rest.dtype...}) {
    LOAM_CHECK(is_float(dtype), "{}: {} is not f32, bf16 or f16", kernel, dtype_name(dtype));
  }
  f(AnyFloat(first), AnyFloat(rest)...);
}

template <class To, class From, int W>
struct Convert {
  To out;
  From in;
  bool add;
  __device__ void operator()(const std::array<int64_t, 2>& at) const {
    store_or_add<W>(out + at[0], load<W>(in + at[1]), add);
  }
};

void copy(const ExecContext& ctx, const CopyArgs& a) {
  if (a.in.dtype == a.out.dtype && !a.accumulate) {
    switch (dtype_size(a.in.dtype)) {
      case 1:
        return copy_bits<uint8_t>(ctx, a);
      case 2:
        return copy_bits<uint16_t>(ctx, a);
      case 4:
        return copy_bits<uint32_t>(ctx, a);
      default:
        return copy_bits<uint64_t>(ctx, a);
    }
  }
  LOAM_CHECK(is_float(a.in.dtype) && is_float(a.out.dtype), "copy: no conversion from {} to {}{}",
             dtype_name(a.in.dtype), dtype_name(a.out.dtype), a.accumulate ? " that adds" : "");
  const Strided<2> views({a.out, a.in});
  for_width(views.width(), [&](auto width) {
    constexpr int W = decltype(width)::value;
    const auto convert = [&](auto out, auto in) {
      for_each_group<W>(ctx, views, "copy", Convert<decltype(out), decltype(in), W>{out, in, a.accumulate});
    };
    for_elements("copy", convert, a.out, a.in);
  });
}

template <class To, class A, class B, int W>
struct Add {
  To out;
  A a;
  B b;
  __device__ void operator()(const std::array<int64_t, 3>& at) const {
    Pack<W> sum = load<W>(a + at[1]);
    const Pack<W> other = load<W>(b + at[2]);
#pragma unroll
    for (int i = 0; i < W; ++i) sum.v[i] += other.v[i];
    store(out + at[0], sum);
  }
};

void add(const ExecContext& ctx, const AddArgs& args) {
  const Strided<3> views({args.out, args.a, args.b});
  for_width(views.width(), [&](auto width) {
    constexpr int W = decltype(width)::value;
    const auto sum = [&](auto out, auto a, auto b) {
      for_each_group<W>(ctx, views, "add", Add<decltype(out), decltype(a), decltype(b), W>{out, a, b});
    };
    for_elements("add", sum, args.out, args.a, args.b);
  });
}

template <class To, class From, int W>
struct Scale {
  To out;
  From in;
  float factor;
  __device__ void operator()(const std::array<int64_t, 2>& at) const {
    Pack<W> pack = load<W>(in + at[1]);
#pragma unroll
    for (int i = 0; i < W; ++i) pack.v[i] *= factor;
    store(out + at[0], pack);
  }
};

void scale(const ExecContext& ctx, const ScaleArgs& a) {
  const Strided<2> views({a.out, a.in});
  for_width(views.width(), [&](auto width) {
    constexpr int W = decltype(width)::value;
    const auto multiply = [&](auto out, auto in) {
      for_each_group<W>(ctx, views, "scale", Scale<decltype(out), decltype(in), W>{out, in, a.factor});
    };
    for_elements("scale", multiply, a.out, a.in);
  });
}

// Columns are summed by blocks of rows, in order; the partial sums of the blocks then again by the same kernel.
constexpr int kSumThreads = 128, kSumRows = 128;

template <class T>
__global__ void sum_rows_kernel(const T* in, int64_t rows, int64_t cols, int64_t stride, int64_t rows_per_block,
                                float* out, bool accumulate) {
  const int64_t c = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (c >= cols) return;
  const int64_t first = blockIdx.y * rows_per_block;
  const int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
  float sum = 0;
  for (int64_t r = first; r < last; ++r) sum += to_float(in[r * stride + c]);
  float* to = out + blockIdx.y * cols + c;
  *to = accumulate ? *to + sum : sum;
}

template <class T>
void sum_rows_of(const ExecContext& ctx, const T* in, const Rows& rows, float* out, bool accumulate) {
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(ceil_div(rows.rows, kSumRows), 65535));
  const int64_t each = std::max<int64_t>(1, ceil_div(rows.rows, parts));
  const dim3 grid(static_cast<unsigned>(ceil_div(rows.cols, kSumThreads)), static_cast<unsigned>(parts));
  const cudaStream_t stream = stream_of(ctx.stream);
  if (parts == 1) {
    sum_rows_kernel<<<grid, kSumThreads, 0, stream>>>(in, rows.rows, rows.cols, rows.stride, each, out, accumulate);
    return launched("sum_rows");
  }
  const Tensor partial = ctx.empty({parts, rows.cols}, DType::f32, MemoryKind::workspace);
  float* sums = partial.data<float>();
  sum_rows_kernel<<<grid, kSumThreads, 0, stream>>>(in, rows.rows, rows.cols, rows.stride, each, sums, false);
  launched("sum_rows");
  sum_rows_of(ctx, static_cast<const float*>(sums), Rows{parts, rows.cols, rows.cols}, out, accumulate);
}

void sum_of_rows(const ExecContext& ctx, const SumRowsArgs& a) {
  const Rows rows = as_rows(a.in, "sum_rows");
  if (rows.cols == 0) return;
  for_float(a.in.dtype, "sum_rows", [&](auto type) {
    sum_rows_of(ctx, static_cast<const decltype(type)*>(a.in.data), rows, a.out.ptr<float>(), a.accumulate);
  });
}

}  // namespace

void sum_rows(const ExecContext& ctx, const float* in, int64_t rows, int64_t cols, float* out, bool accumulate) {
  if (cols > 0) sum_rows_of(ctx, in, Rows{rows, cols, cols}, out, accumulate);
}

void register_elementwise_kernels(KernelTable& table) {
  table.fill.function = fill;
  table.copy.function = copy;
  table.add.function = add;
  table.scale.function = scale;
  table.sum_rows.function = sum_of_rows;
}

}  // namespace loam::cuda
