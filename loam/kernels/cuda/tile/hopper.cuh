// What Hopper (sm_90a) adds to a kernel of matrix products: barriers that count bytes, the bulk copy engine and the
// matrix products of a warpgroup. PTX ISA 8.0, sections on mbarrier, cp.async.bulk.tensor and wgmma.
//
// A tile is cut into panels of 64 numbers of 16 bits: a row of a panel has 128 bytes, and its chunks of 16 bytes lie
// swizzled as in mma.cuh, which is what the copy engine calls SWIZZLE_128B. A panel starts at a multiple of 1024 bytes.
#pragma once

#include <cuda.h>

#include "loam/kernels/cuda/tile/mma.cuh"

namespace loam::cuda {

inline constexpr int kPanel = 64, kPanelRow = 128;  // numbers, bytes
inline constexpr int kWarpgroup = 128;              // threads

// --- barriers: addresses of 8 bytes of shared memory

__device__ inline void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals));
}
// Makes barriers that were just made known to the copy engine.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory"); }
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
// By a warp: once, when all its threads have come.
__device__ inline void arrive_as_warp(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}
// Arrives, and has the phase wait for `bytes` of copies too.
__device__ inline void arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the phase of this parity is over; of a new barrier, the phase of parity 1 is.
__device__ inline void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Barriers of whole warps, by number: all `threads` wait, or some only say that they came.
__device__ inline void meet(int id, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void pass(int id, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

// --- the bulk copy engine, by one thread

__device__ inline void fetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}
// A box of a tensor of four axes, from element (x, y, z, w) on; what lies outside is 0. The barrier counts its bytes.
__device__ inline void load_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];\n" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
// `bytes` (a multiple of 16) as they lie.
__device__ inline void load_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// What lies outside is not written.
__device__ inline void store_box(const CUtensorMap& map, uint32_t from, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];\n" ::"l"(&map),
               "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}
// Until the stores of this thread have read shared memory.
__device__ inline void wait_for_stores() { asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory"); }
// What this thread wrote to shared memory may be read by the copy engine and by wgmma.
__device__ inline void publish_shared() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

// --- matrix products of a warpgroup

// A panel whose rows run along the inner axis (K) of the product.
__device__ inline uint64_t panel_along_k(uint32_t address) {
  return uint64_t{(address & 0x3FFFF) >> 4} | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
// Panels whose rows run across it, `apart` bytes from one panel to the next.
__device__ inline uint64_t panel_across_k(uint32_t address, int apart) {
  return uint64_t{(address & 0x3FFFF) >> 4} | static_cast<uint64_t>(apart >> 4) << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
inline constexpr uint64_t kNextK = 32 >> 4;             // 16 numbers further along K
inline constexpr uint64_t kNextAcross = 16 * 128 >> 4;  // 16 rows further

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
// Until at most kLeft groups of products are under way.
template <int kLeft>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kLeft) : "memory");
}
// The compiler must not move uses of these registers across this point.
template <int kCount>
__device__ inline void pin(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

#define LOAM_F4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define LOAM_F16(x, i) LOAM_F4(x, i), LOAM_F4(x, i + 4), LOAM_F4(x, i + 8), LOAM_F4(x, i + 12)
#define LOAM_F32(x, i) LOAM_F16(x, i), LOAM_F16(x, i + 16)
#define LOAM_R32                                                                                                       \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31"
#define LOAM_R64                                                                                                      \
  LOAM_R32                                                                                                            \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59," \
  "%60,%61,%62,%63"

// c = a b^T (c += with `add`) for 64 rows of `a` and kN rows of `b`, both along K, 16 of K. Thread l of warp w holds
// c[4 n + 2 h + e] at row 16 w + 8 h + l / 4, column 8 n + 2 (l % 4) + e.
template <int kN>
__device__ inline void product_abt(float (&c)[kN / 2], uint64_t a, uint64_t b, bool add) {
  static_assert(kN == 64 || kN == 128);
  if constexpr (kN == 64) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LOAM_R32 "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
        : LOAM_F32(c, 0)
        : "l"(a), "l"(b), "r"(int{add}));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" LOAM_R64 "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
        : LOAM_F32(c, 0), LOAM_F32(c, 32)
        : "l"(a), "l"(b), "r"(int{add}));
  }
}

// c += a b, `a` in registers (as mma.cuh's mma has it), 16 rows of `b` across K.
template <int kN>
__device__ inline void product_ab(float (&c)[kN / 2], const uint32_t* a, uint64_t b) {
  static_assert(kN == 64 || kN == 128);
  if constexpr (kN == 64) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LOAM_R32
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"
        : LOAM_F32(c, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" LOAM_R64
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n"
        : LOAM_F32(c, 0), LOAM_F32(c, 32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1));
  }
}
// c = a^T b (c += with `add`) for 64 columns of `a` and of `b`, both across K.
__device__ inline void product_atb(float (&c)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LOAM_R32 "}, %32, %33, p, 1, 1, 1, 1;\n}\n"
      : LOAM_F32(c, 0)
      : "l"(a), "l"(b), "r"(int{add}));
}
#undef LOAM_F4
#undef LOAM_F16
#undef LOAM_F32
#undef LOAM_R32
#undef LOAM_R64

}  // namespace loam::cuda
