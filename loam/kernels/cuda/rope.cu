// Rotary positions: a block a token. Its threads first make the cosines and sines of some pairs, in f64 from the
// integer position, then rotate these pairs in every head.
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

template <class T>
__global__ void rope_kernel(RopeViews<T> v) {
  __shared__ float cosine[kPairs], sine[kPairs];
  const int64_t token = blockIdx.x;
  const T* in = v.in + token * v.in_token;
  T* out = v.out + token * v.out_token;
  const auto put = [&](T* to, float value) { *to = from_float<T>(v.accumulate ? to_float(*to) + value : value); };
  for (int first = 0; first < v.pairs; first += kPairs) {
    const int count = min(kPairs, v.pairs - first);
    __syncthreads();
    for (int k = threadIdx.x; k < count; k += kThreads) {
      double s, c;
      sincos(static_cast<double>(v.positions[token]) * static_cast<double>(v.frequency[first + k]), &s, &c);
      cosine[k] = v.factor * static_cast<float>(c);
      sine[k] = (v.inverse ? -v.factor : v.factor) * static_cast<float>(s);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < v.heads * count; i += kThreads) {
      const int head = i / count, k = i % count;
      const int low = v.interleaved ? 2 * (first + k) : first + k;
      const int high = v.interleaved ? low + 1 : low + v.pairs;
      const T* from = in + head * v.in_head;
      T* to = out + head * v.out_head;
      const float a = to_float(from[low]), b = to_float(from[high]);
      put(to + low, a * cosine[k] - b * sine[k]);
      put(to + high, a * sine[k] + b * cosine[k]);
    }
  }
  const int rest = v.dim - 2 * v.pairs;  // is not rotated
  if (rest == 0 || (in == out && !v.accumulate)) return;
  for (int i = threadIdx.x; i < v.heads * rest; i += kThreads) {
    const int head = i / rest, at = 2 * v.pairs + i % rest;
    put(out + head * v.out_head + at, to_float(in[head * v.in_head + at]));
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
    rope_kernel<<<static_cast<unsigned>(tokens), kThreads, 0, stream_of(ctx.stream)>>>(views);
    launched("rope");
  });
}

}  // namespace

void register_rope_kernels(KernelTable& table) { table.rope.function = rope; }

}  // namespace loam::cuda
