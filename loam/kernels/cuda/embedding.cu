// Rows of a table by index, and the sum of gradients back into them. Legend: N tokens, V vocabulary, C width.
//
// Backward sorts the tokens by id, stably, so that the gradients of an id are neighbours in order of the tokens. A
// block sums kChunk of them; a run of equal ids that reaches over the end of a chunk is left in parts, which a second
// kernel adds in order. So no atomic is needed, and an id that is everywhere holds nobody up.
#include "loam/kernels/embedding.h"

#include <cub/device/device_radix_sort.cuh>

#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/register.h"
#include "loam/kernels/kernel_table.h"

namespace loam::cuda {
namespace {

constexpr int kThreads = 128, kChunk = 64;

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

// Parts of runs that lie in several chunks: of chunk k the part that came from chunk k - 1, and the one that goes on in
// chunk k + 1 if it begins in k.
__device__ float* part_of(float* parts, int64_t chunk, bool begins, int cols) {
  return parts + (2 * chunk + (begins ? 1 : 0)) * cols;
}

template <class T>
__global__ void sum_chunks_kernel(const int32_t* ids, const int32_t* tokens, int n, const T* d_out,
                                  int64_t gradient_stride, float* d_table, int64_t table_stride, int cols,
                                  float* parts) {
  const int c = blockIdx.y * kThreads + threadIdx.x;
  if (c >= cols) return;
  const int64_t chunk = blockIdx.x;
  const int first = static_cast<int>(chunk) * kChunk, last = min(first + kChunk, n);
  bool begins = first == 0 || ids[first] != ids[first - 1];  // the run at hand, in this chunk
  bool fresh = true;
  float sum = 0;
  for (int i = first; i < last; ++i) {
    float* to = d_table + ids[i] * table_stride + c;
    if (fresh) sum = begins ? *to : 0;
    sum += to_float(d_out[tokens[i] * gradient_stride + c]);
    fresh = i + 1 == n || ids[i + 1] != ids[i];  // the run ends
    if (fresh && begins) *to = sum;
    if (fresh ? !begins : i + 1 == last) part_of(parts, chunk, begins, cols)[c] = sum;
    begins |= fresh;
  }
}

// A block for each chunk in which a run begins that goes on in the next.
__global__ void join_parts_kernel(const int32_t* ids, int n, float* parts, float* d_table, int64_t table_stride,
                                  int cols) {
  const int c = blockIdx.y * kThreads + threadIdx.x;
  const int64_t chunk = blockIdx.x, end = (chunk + 1) * kChunk;  // of the chunk
  if (c >= cols || end >= n) return;
  const int32_t id = ids[end - 1];
  if (ids[end] != id) return;
  if (chunk > 0 && ids[chunk * kChunk - 1] == id) return;  // it began before, if this chunk is all of it
  float sum = part_of(parts, chunk, true, cols)[c];
  for (int64_t next = chunk + 1; next * kChunk < n && ids[next * kChunk] == id; ++next) {
    sum += part_of(parts, next, false, cols)[c];
  }
  d_table[id * table_stride + c] = sum;
}

void embedding_bwd(const ExecContext& ctx, const EmbeddingBwdArgs& a) {
  const Rows table = as_rows(a.d_table, "embedding"), gradient = as_rows(a.d_out, "embedding");
  const int n = static_cast<int>(gradient.rows), cols = static_cast<int>(table.cols);
  LOAM_CHECK(gradient.rows < (int64_t{1} << 30), "embedding: {} tokens at once", gradient.rows);
  const cudaStream_t stream = stream_of(ctx.stream);
  size_t sort_bytes = 0;
  int32_t* none = nullptr;
  LOAM_CUDA(cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes, none, none, none, none, n, 0, 32, stream));
  const int64_t chunks = ceil_div(n, kChunk);
  const Tensor sorted = ctx.empty({3, n}, DType::i32, MemoryKind::workspace);  // tokens; ids and tokens by id
  const Tensor scratch = ctx.empty({static_cast<int64_t>(sort_bytes)}, DType::u8, MemoryKind::workspace);
  const Tensor parts = ctx.empty({chunks, 2, cols}, DType::f32, MemoryKind::workspace);
  if (ctx.arena->sparse()) return;
  if (!a.accumulate) ctx.kernels->fill(ctx, {a.d_table, 0.0f});
  if (n == 0 || cols == 0) return;
  int32_t *unsorted = sorted.data<int32_t>(), *ids = unsorted + n, *tokens = ids + n;
  count_up_kernel<<<static_cast<unsigned>(ceil_div(n, 256)), 256, 0, stream>>>(unsorted, n);
  launched("embedding");
  LOAM_CUDA(cub::DeviceRadixSort::SortPairs(scratch.data<uint8_t>(), sort_bytes, a.ids.ptr<int32_t>(), ids, unsorted,
                                            tokens, n, 0, 32, stream));
  const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(ceil_div(cols, kThreads)));
  for_float(a.d_out.dtype, "embedding", [&](auto type) {
    sum_chunks_kernel<<<grid, kThreads, 0, stream>>>(ids, tokens, n, static_cast<const decltype(type)*>(a.d_out.data),
                                                     gradient.stride, a.d_table.ptr<float>(), table.stride, cols,
                                                     parts.data<float>());
  });
  launched("embedding");
  join_parts_kernel<<<grid, kThreads, 0, stream>>>(ids, n, parts.data<float>(), a.d_table.ptr<float>(), table.stride,
                                                   cols);
  launched("embedding");
}

}  // namespace

void register_embedding_kernels(KernelTable& table) {
  table.embedding_fwd.function = embedding_fwd;
  table.embedding_bwd.function = embedding_bwd;
}

}  // namespace loam::cuda
