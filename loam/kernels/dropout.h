// Dropout, Srivastava et al. 2014. Legend: B rows (samples), n elements a row.
#pragma once

#include "loam/base/philox.h"
#include "loam/kernels/exec_context.h"

namespace loam {

// The random numbers of one row at one site of the model: a function of the run's seed, the site and the row's global
// sample (ctx.step->first_sample + ctx.first_row + row), so that they depend neither on the cut into micro-batches nor
// on ranks, and backward finds them again.
inline uint64_t dropout_key(const ExecContext& ctx, uint64_t site) { return ctx.seed ^ site * 0x9E3779B97F4A7C15u; }
inline PhiloxStream dropout_stream(const ExecContext& ctx, uint64_t site, int64_t row) {
  const auto sample = static_cast<uint64_t>((ctx.step ? ctx.step->first_sample : 0) + ctx.first_row + row);
  return {dropout_key(ctx, site), sample};
}
// An element is dropped where its 32 random bits lie below this.
constexpr uint32_t dropout_bound(float probability) { return static_cast<uint32_t>(probability * 0x1p32); }

// out = in / (1 - probability) where an element is kept, else 0.
struct DropoutArgs {
  View in;  // [B,n], f32, bf16 or f16
  float probability = 0;
  uint64_t site = 0;
  View out;                 // [B,n]; may be the same memory
  bool accumulate = false;  // out +=
};

}  // namespace loam
