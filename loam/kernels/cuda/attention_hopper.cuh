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

// A block's i-th tile, -1 after the last: long ones come first, and rounds run to and fro over the blocks, so that each
// gets about the same work.
__device__ inline int tile_of_round(int tiles, int round) {
  const int grid = static_cast<int>(gridDim.x), x = static_cast<int>(blockIdx.x);
  const int tile = round * grid + (round % 2 ? grid - 1 - x : x);
  return tile < tiles ? tile : -1;
}

// False if the copy engine does not take [B,T,H,D] as it lies. Boxes have `rows` positions and a panel's width.
bool make_map(CUtensorMap& map, const View& v, int rows);

// The multiprocessors of the current device; 0 if it is no Hopper GPU.
int hopper_multiprocessors();

// How many of `heads` heads go together, so that the L2 cache holds what they read again and again: `bytes` for each
// `group` of them.
int heads_together(int64_t heads, int64_t group, int64_t bytes);

}  // namespace loam::cuda
