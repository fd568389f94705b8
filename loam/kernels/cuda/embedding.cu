// Rows of a table by index, and the sum of gradients back into them. Legend: N tokens, V vocabulary, C width.
//
// Backward sorts the tokens by id, stably, so that the gradients of an id are a run of neighbours in order of the
// tokens. A run is summed by pieces of kPiece tokens from its begin: most runs are one piece, summed in order into the
// table; the pieces of longer ones go to parts, which a second kernel adds in order. So no atomic is needed, and an id
// that is everywhere holds nobody up.
#include "loam/kernels/embedding.h"

#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/register.h"
#include "loam/kernels/kernel_table.h"

namespace loam::cuda {
namespace {

constexpr int kThreads = 128, kPiece = 64;

template <class T, int W>
__global__ void embedding_fwd_kernel(const int32_t* ids, const T* table, int64_t table_stride, T* out,
                                     int64_t out_stride, int cols) {
  const T* from = table + ids[blockIdx.x] * table_stride;
  T* to = out + blockIdx.x * out_stride;
  for (int c = threadIdx.x * W; c < cols; c += kThreads * W) {
    *reinterpret_cast<Raw<T, W>*>(to + c) = *reinterpret_cast<const Raw<T, W>*>(from + c);
  }
}

void embedding_fwd(const ExecContext& ctx, const EmbeddingFwdArgs& a) {
  const Rows table = as_rows(a.table, "embedding"), out = as_rows(a.out, "embedding");
  if (out.rows == 0 || out.cols == 0) return;
  for_float(a.table.dtype, "embedding", [&](auto type) {
    using T = decltype(type);
    const int width =
        pack_width(out.cols, {{a.table.data, sizeof(T), table.stride}, {a.out.data, sizeof(T), out.stride}});
    for_width(width, [&](auto w) {
      embedding_fwd_kernel<T, decltype(w)::value>
          <<<static_cast<unsigned>(out.rows), kThreads, 0, stream_of(ctx.stream)>>>(
              a.ids.ptr<int32_t>(), static_cast<const T*>(a.table.data), table.stride, static_cast<T*>(a.out.data),
              out.stride, static_cast<int>(out.cols));
    });
    launched("embedding");
  });
}

__global__ void count_up_kernel(int32_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = i;
}

// The first index in [first, last) of sorted `ids` at which there is no smaller one than `id`; else `last`.
__device__ int lower_bound(const int32_t* ids, int first, int last, int32_t id) {
  while (first < last) {
    const int middle = first + (last - first) / 2;
    if (ids[middle] < id) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

// A block takes the pieces that begin in its window of kPiece sorted tokens. Of long runs there are at most two: one of
// a run from before, and the first of a run that goes on after the window.
__device__ float* part_of(float* parts, int64_t window, bool is_first, int cols) {
  return parts + (2 * window + (is_first ? 1 : 0)) * cols;
}

template <class T, int W>
__global__ void sum_pieces_kernel(const int32_t* sorted_ids, const int32_t* sorted_tokens, int n, const T* d_out,
                                  int64_t gradient_stride, float* d_table, int64_t table_stride, int cols,
                                  float* parts) {
  static_assert(kThreads == 2 * kPiece);
  __shared__ int32_t ids[kThreads], tokens[kThreads];  // of the window, and of as many after it
  const int first = static_cast<int>(blockIdx.x) * kPiece, i = first + static_cast<int>(threadIdx.x);
  ids[threadIdx.x] = i < n ? sorted_ids[i] : -1;
  tokens[threadIdx.x] = i < n ? sorted_tokens[i] : 0;
  __syncthreads();
  const int c = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * W;
  if (c >= cols) return;
  int at = 0;
  bool is_first = true;  // of its run, the piece at hand
  if (first > 0 && sorted_ids[first - 1] == ids[0]) {
    const int before = (first - lower_bound(sorted_ids, 0, first, ids[0])) % kPiece;
    const int next = before == 0 ? 0 : kPiece - before;  // where the run's next piece would begin
    while (at < next && ids[at] == ids[0]) ++at;
    is_first = ids[at] != ids[0];
  }
  while (at < kPiece && ids[at] >= 0) {
    const int32_t id = ids[at];
    int end = at + 1;
    while (end < at + kPiece && ids[end] == id) ++end;
    const bool whole = is_first && (end < at + kPiece || ids[end] != id);  // the piece is the run
    float* row = d_table + id * table_stride + c;
    Pack<W> sum = is_first ? load<W>(row) : Pack<W>{};
#pragma unroll 8
    for (int k = at; k < end; ++k) {
      const Pack<W> gradient = load<W>(d_out + tokens[k] * gradient_stride + c);
#pragma unroll
      for (int j = 0; j < W; ++j) sum.v[j] += gradient.v[j];
    }
    store(whole ? row : part_of(parts, blockIdx.x, is_first, cols) + c, sum);
    at = end;
    is_first = true;
  }
}

// A block for each window in which a long run begins.
__global__ void join_pieces_kernel(const int32_t* ids, int n, float* parts, float* d_table, int64_t table_stride,
                                   int cols) {
  const int c = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  const int window = static_cast<int>(blockIdx.x), first = window * kPiece, end = first + kPiece;
  if (c >= cols || end >= n) return;
  const int32_t id = ids[end - 1];
  if (ids[end] != id || (first > 0 && ids[first - 1] == id)) return;
  const int begin = lower_bound(ids, first, end, id);
  if (begin + kPiece >= n || ids[begin + kPiece] != id) return;
  const int pieces = (lower_bound(ids, begin, n, id + 1) - begin + kPiece - 1) / kPiece;
  float sum = part_of(parts, window, true, cols)[c];
#pragma unroll 8
  for (int k = 1; k < pieces; ++k) sum += part_of(parts, window + k, false, cols)[c];
  d_table[id * table_stride + c] = sum;
}

void embedding_bwd(const ExecContext& ctx, const EmbeddingBwdArgs& a) {
  const Rows table = as_rows(a.d_table, "embedding"), gradient = as_rows(a.d_out, "embedding");
  const int n = static_cast<int>(gradient.rows), cols = static_cast<int>(table.cols);
  LOAM_CHECK(gradient.rows < (int64_t{1} << 30), "embedding: {} tokens at once", gradient.rows);
  const cudaStream_t stream = stream_of(ctx.stream);
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(table.rows))));  // of an id
  size_t sort_bytes = 8 * static_cast<size_t>(n);  // what counts; how much beyond it is the GPU's to say
  int32_t* none = nullptr;
  if (ctx.handles)
    LOAM_CUDA(cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes, none, none, none, none, n, 0, bits, stream));
  const int64_t windows = ceil_div(n, kPiece);
  const Tensor sorted = ctx.empty({3, n}, DType::i32, MemoryKind::workspace);  // tokens; ids and tokens by id
  const Tensor scratch = ctx.empty({static_cast<int64_t>(sort_bytes)}, DType::u8, MemoryKind::workspace);
  const Tensor parts = ctx.empty({windows, 2, cols}, DType::f32, MemoryKind::workspace);
  if (ctx.arena->sparse()) return;
  if (!a.accumulate) ctx.kernels->fill(ctx, {a.d_table, 0.0f});
  if (n == 0 || cols == 0) return;
  int32_t *unsorted = sorted.data<int32_t>(), *ids = unsorted + n, *tokens = ids + n;
  count_up_kernel<<<static_cast<unsigned>(ceil_div(n, 256)), 256, 0, stream>>>(unsorted, n);
  launched("embedding");
  LOAM_CUDA(cub::DeviceRadixSort::SortPairs(scratch.data<uint8_t>(), sort_bytes, a.ids.ptr<int32_t>(), ids, unsorted,
                                            tokens, n, 0, bits, stream));
  const auto grid = [&](int width) {
    return dim3(static_cast<unsigned>(windows), static_cast<unsigned>(ceil_div(cols, kThreads * width)));
  };
  for_float(a.d_out.dtype, "embedding", [&](auto type) {
    using T = decltype(type);
    const int width =
        pack_width(cols, {{a.d_out.data, sizeof(T), gradient.stride}, {a.d_table.data, 4, table.stride}}) >= 4 ? 4 : 1;
    const auto kernel = width == 4 ? sum_pieces_kernel<T, 4> : sum_pieces_kernel<T, 1>;
    kernel<<<grid(width), kThreads, 0, stream>>>(ids, tokens, n, static_cast<const T*>(a.d_out.data), gradient.stride,
                                                 a.d_table.ptr<float>(), table.stride, cols, parts.data<float>());
  });
  launched("embedding");
  join_pieces_kernel<<<grid(1), kThreads, 0, stream>>>(ids, n, parts.data<float>(), a.d_table.ptr<float>(),
                                                       table.stride, cols);
  launched("embedding");
}

}  // namespace

void register_embedding_kernels(KernelTable& table) {
  table.embedding_fwd.function = embedding_fwd;
  table.embedding_bwd.function = embedding_bwd;
}

}  // namespace loam::cuda
