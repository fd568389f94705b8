// Rows of a table by index, and the sum of gradients back into them. Legend: N tokens, V vocabulary, C width.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/embedding.cpp"

#include "loam/kernels/embedding.h"

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

// to[0 .. n) += from[0 .. n)
template <class From, class To>
HWY_INLINE void add_to(const From* from, To* to, int64_t n) {
  for_vectors(n,
              [&](int64_t i, auto width) LOAM_LOOP_BODY { store_or_add(load(from + i, width), to + i, true, width); });
}

template <class T>
void embedding_fwd_of(const EmbeddingFwdArgs& a, int64_t begin, int64_t end) {
  const Rows table = as_rows(a.table, "embedding"), out = as_rows(a.out, "embedding");
  const int32_t* ids = a.ids.ptr<int32_t>();
  for (int64_t n = begin; n < end; ++n) {
    const T* row = a.table.ptr<T>() + ids[n] * table.stride;
    std::memcpy(a.out.ptr<T>() + n * out.stride, row, static_cast<size_t>(table.cols) * sizeof(T));
  }
}

template <class T>
void embedding_bwd_of(const EmbeddingBwdArgs& a, int64_t begin, int64_t end) {
  const Rows table = as_rows(a.d_table, "embedding"), grad = as_rows(a.d_out, "embedding");
  const int32_t* ids = a.ids.ptr<int32_t>();
  for (int64_t n = 0; n < grad.rows; ++n) {
    add_to(a.d_out.ptr<T>() + n * grad.stride + begin, a.d_table.ptr<float>() + ids[n] * table.stride + begin,
           end - begin);
  }
}

void embedding_fwd_tokens(const EmbeddingFwdArgs& a, int64_t begin, int64_t end) {
  visit_float(a.table.dtype, "embedding", [&](auto type) { embedding_fwd_of<decltype(type)>(a, begin, end); });
}
void embedding_bwd_columns(const EmbeddingBwdArgs& a, int64_t begin, int64_t end) {
  visit_float(a.d_out.dtype, "embedding", [&](auto type) { embedding_bwd_of<decltype(type)>(a, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace {

HWY_EXPORT(embedding_fwd_tokens);
HWY_EXPORT(embedding_bwd_columns);

void embedding_fwd(const ExecContext& ctx, const EmbeddingFwdArgs& a) {
  each_row(ctx, as_rows(a.out, "embedding"), HWY_DYNAMIC_DISPATCH(embedding_fwd_tokens), a);
}

// Threads share the columns, so each sum is taken in order of the tokens by one thread.
void embedding_bwd(const ExecContext& ctx, const EmbeddingBwdArgs& a) {
  const Rows table = as_rows(a.d_table, "embedding"), grad = as_rows(a.d_out, "embedding");
  if (!a.accumulate) {
    parallel_for(ctx.threads, table.rows, row_grain(table.cols), [&](int64_t begin, int64_t end, int) {
      for (int64_t v = begin; v < end; ++v) {
        std::fill_n(a.d_table.ptr<float>() + v * table.stride, table.cols, 0.0f);
      }
    });
  }
  constexpr int64_t kCacheLine = 16;  // f32 of one cache line
  const int64_t lines = (table.cols + kCacheLine - 1) / kCacheLine;
  parallel_for(ctx.threads, lines, row_grain(grad.rows * kCacheLine), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(embedding_bwd_columns)(a, begin * kCacheLine, std::min(end * kCacheLine, table.cols));
  });
}

}  // namespace

void register_embedding_kernels(KernelTable& table) {
  table.embedding_fwd.function = embedding_fwd;
  table.embedding_bwd.function = embedding_bwd;
}

}  // namespace loam
#endif
