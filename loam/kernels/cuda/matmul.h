// The parts of the GPU's matrix product.
#pragma once

#include <memory>

#include "loam/kernels/matmul.h"

namespace loam::cuda {

// cuBLASLt's handle of the current device, with the algorithm of every form of product met so far. Thread safety: may
// be used from any thread.
class MatmulCache {
 public:
  MatmulCache();
  ~MatmulCache();
  MatmulCache(const MatmulCache&) = delete;
  MatmulCache& operator=(const MatmulCache&) = delete;

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// The product by our own kernel, whose every element is summed over K in one order: that of level exact, and of what
// cuBLASLt has no algorithm for.
void tiled_matmul(const ExecContext& ctx, const MatmulArgs& args);

// c = sums (+ c if args.accumulate) (+ args.bias), rounded once. sums [M,N] is f32, with a unit stride on the last
// axis, and may be c.
void finish_matmul(const ExecContext& ctx, const View& sums, const MatmulArgs& args);

}  // namespace loam::cuda
