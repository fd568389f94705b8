#include "loam/autograd/recompute.h"

#include "loam/autograd/tape.h"

namespace loam {

std::vector<Var> recompute(const Context& ctx, const Segment& segment, const std::vector<Var>& inputs) {
  return ctx.tape ? ctx.tape->record_segment(ctx, segment, inputs) : segment(ctx, inputs);
}

}  // namespace loam
