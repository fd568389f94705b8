// Rotary positions: a block a token. Its threads first make the cosines and sines of some pairs, in f64 from the
// integer position, then rotate these pairs in every head, W at a time.
#include "loam/kernels/rope.h"

#include "loam/kernels/cuda/launch.cuh"
#include "loam/kernels/cuda/register.h"

namespace loam::cuda {
namespace {

constexpr int kThreads = 128, kPairs = 128;

template <class T>
struct RopeViews {
  const T* in;
  T* out;
  int64_t in_token, in_head, out_token, out_head;  // strides
  const int32_t* positions;
  const float* frequency;
  int heads, dim, pairs;
  bool interleaved, inverse, accumulate;
  float factor;
};

// Rotates W pairs, of which pair j is (e[j kStep], e[j kStep + kApart]).
template <int W, int kStep, int kApart>
__device__ void rotate(float (&e)[2 * W], const float* cosine, const float* sine) {
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const float a = e[j * kStep], b = e[j * kStep + kApart];
    e[j * kStep] = a * cosine[j] - b * sine[j];
    e[j * kStep + kApart] = a * sine[j] + b * cosine[j];
  }
}

template <class T, int W>
__global__ void rope_kernel(RopeViews<T> v) {
  __shared__ float cosine[kPairs], sine[kPairs];
  const int64_t token = blockIdx.x;
  const T* in = v.in + token * v.in_token;
  T* out = v.out + token * v.out_token;
  for (int first = 0; first < v.pairs; first += kPairs) {
    const int count = min(kPairs, v.pairs - first), groups = count / W;
    __syncthreads();
    for (int k = threadIdx.x; k < count; k += kThreads) {
      double s, c;
      sincos(static_cast<double>(v.positions[token]) * static_cast<double>(v.frequency[first + k]), &s, &c);
      cosine[k] = v.factor * static_cast<float>(c);
      sine[k] = (v.inverse ? -v.factor : v.factor) * static_cast<float>(s);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < v.heads * groups; i += kThreads) {
      const int head = i / groups, k = i % groups * W;
      const int low = v.interleaved ? 2 * (first + k) : first + k;
      const int high = v.interleaved ? low + W : low + v.pairs;
      const T* from = in + head * v.in_head;
      T* to = out + head * v.out_head;
      Pack<W> x = load<W>(from + low), y = load<W>(from + high);
      float e[2 * W];
#pragma unroll
      for (int j = 0; j < W; ++j) e[j] = x.v[j], e[W + j] = y.v[j];
      if (v.interleaved) {
        rotate<W, 2, 1>(e, cosine + k, sine + k);
      } else {
        rotate<W, 1, W>(e, cosine + k, sine + k);
      }
#pragma unroll
      for (int j = 0; j < W; ++j) x.v[j] = e[j], y.v[j] = e[W + j];
      store_or_add<W>(to + low, x, v.accumulate);
      store_or_add<W>(to + high, y, v.accumulate);
    }
  }
  const int rest = (v.dim - 2 * v.pairs) / W;  // packs that are not rotated
  if (in == out && !v.accumulate) return;
  for (int i = threadIdx.x; i < v.heads * rest; i += kThreads) {
    const int head = i / rest, at = 2 * v.pairs + i % rest * W;
    store_or_add<W>(out + head * v.out_head + at, load<W>(in + head * v.in_head + at), v.accumulate);
  }
}

void rope(const ExecContext& ctx, const RopeArgs& a) {
  const auto [N, H, D] = a.in.dims<3>();
  if (N == 0 || H == 0 || D == 0) return;
  for_float(a.in.dtype, "rope", [&, tokens = N, heads = H, dim = D](auto type) {
    using T = decltype(type);
    const RopeViews<T> views{static_cast<const T*>(a.in.data),
                             static_cast<T*>(a.out.data),
                             a.in.stride(0),
                             a.in.stride(1),
                             a.out.stride(0),
                             a.out.stride(1),
                             a.positions.ptr<int32_t>(),
                             a.frequency.ptr<float>(),
                             static_cast<int>(heads),
                             static_cast<int>(dim),
                             static_cast<int>(a.frequency.dim(0)),
                             a.layout == RopeLayout::interleaved,
                             a.inverse,
                             a.accumulate,
                             a.factor};
    const int width = pack_width(dim, {{views.in, sizeof(T), views.in_token | views.in_head},
                                       {views.out, sizeof(T), views.out_token | views.out_head}});
    const auto kernel = width >= 4 && views.pairs % 4 == 0 ? rope_kernel<T, 4> : rope_kernel<T, 1>;
    kernel<<<static_cast<unsigned>(tokens), kThreads, 0, stream_of(ctx.stream)>>>(views);
    launched("rope");
  });
}

}  // namespace

void register_rope_kernels(KernelTable& table) { table.rope.function = rope; }

}  // namespace loam::cuda
