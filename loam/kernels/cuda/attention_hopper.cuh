// What attention's kernels for Hopper share: rings of stages, the order of tiles, and how the copy engine sees a
// tensor.
#pragma once

#include <cuda.h>

#include "loam/kernels/cuda/attention.cuh"
#include "loam/kernels/cuda/tile/hopper.cuh"

namespace loam::cuda {

// The stage of a ring that comes next, and the parity of its phase.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  template <int kStages>
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Tiles go to blocks as these get through: one thread of a block draws them and hands them to the warps that compute.
struct TileQueue {
  static constexpr int kPlaces = 2, kBytes = 8 * 2 * kPlaces + 16;  // of shared memory
  uint32_t base;
  int* drawn;  // in the device's memory: how many were drawn, beyond the first of every block
  int tiles;
  uint32_t turn = 0;

  __device__ uint32_t full() const { return base + 8 * (turn % kPlaces); }
  __device__ uint32_t empty() const { return base + 8 * (kPlaces + turn % kPlaces); }
  __device__ uint32_t place() const { return base + 8 * 2 * kPlaces + 4 * (turn % kPlaces); }
  __device__ uint32_t parity() const { return turn / kPlaces % 2; }
  __device__ void init(int warps) {
    for (; turn < kPlaces; ++turn) init_barrier(full(), 1), init_barrier(empty(), warps);
    turn = 0;
  }
  // By the thread that copies: f(tile) for all tiles of this block.
  template <class F>
  __device__ void hand_out(F f) {
    int tile = static_cast<int>(blockIdx.x);
    while (tile < tiles) {
      const int next = static_cast<int>(gridDim.x) + atomicAdd(drawn, 1);
      put(tile);
      f(tile);
      tile = next;
    }
    put(-1);
  }
  // By a warp that computes: -1 after the last.
  __device__ int take() {
    int tile;
    wait(full(), parity());
    asm volatile("ld.shared.s32 %0, [%1];\n" : "=r"(tile) : "r"(place()) : "memory");
    arrive_as_warp(empty());
    ++turn;
    return tile;
  }

 private:
  __device__ void put(int tile) {
    wait(empty(), parity() ^ 1);
    asm volatile("st.shared.s32 [%0], %1;\n" ::"r"(place()), "r"(tile) : "memory");
    arrive(full());
    ++turn;
  }
};

// False if the copy engine does not take [B,T,H,D] as it lies. Boxes have `rows` positions and a panel's width.
bool make_map(CUtensorMap& map, const View& v, int rows);

// The multiprocessors of the current device; 0 if it is no Hopper GPU.
int hopper_multiprocessors();

// How many of `heads` heads go together, so that the L2 cache holds what they read again and again: `bytes` for each
// `group` of them.
int heads_together(int64_t heads, int64_t group, int64_t bytes);

}  // namespace loam::cuda
