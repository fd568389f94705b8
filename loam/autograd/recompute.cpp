#include "loam/autograd/recompute.h"

#include <algorithm>
#include <memory>

#include "loam/autograd/tape.h"

namespace loam {
namespace {

struct Chain {
  std::vector<int64_t> sizes;
  Stage stage;
};

// A chain within another one runs when backward has come to its end: the activations of its last segment are needed at
// once, and it is recorded as it stands.
bool runs_again(size_t level, int64_t last, int64_t end) { return level == 0 || last < end; }

Var run(const Context& ctx, const std::shared_ptr<const Chain>& chain, size_t level, int64_t begin, int64_t end,
        Var x) {
  if (level == chain->sizes.size()) {
    for (int64_t i = begin; i < end; ++i) x = chain->stage(ctx, i, x);
    return x;
  }
  for (int64_t first = begin, last = begin; first < end; first = last) {
    last = std::min(first + chain->sizes[level], end);
    const Segment segment = [=](const Context& c, const std::vector<Var>& inputs) {
      return std::vector<Var>{run(c, chain, level + 1, first, last, inputs[0])};
    };
    x = runs_again(level, last, end) ? recompute(ctx, segment, {x})[0] : segment(ctx, {x})[0];
  }
  return x;
}

void add_reruns(std::span<const int64_t> sizes, size_t level, int64_t begin, int64_t end, std::vector<int64_t>& runs) {
  if (level == sizes.size()) return;
  for (int64_t first = begin, last = begin; first < end; first = last) {
    last = std::min(first + sizes[level], end);
    if (runs_again(level, last, end)) {
      for (int64_t i = first; i < last; ++i) ++runs[static_cast<size_t>(i)];
    }
    add_reruns(sizes, level + 1, first, last, runs);
  }
}

}  // namespace

std::vector<Var> recompute(const Context& ctx, const Segment& segment, const std::vector<Var>& inputs) {
  return ctx.tape ? ctx.tape->record_segment(ctx, segment, inputs) : segment(ctx, inputs);
}

Var recompute_chain(const Context& ctx, int64_t count, std::vector<int64_t> sizes, Stage stage, Var x) {
  const auto chain = std::make_shared<const Chain>(Chain{std::move(sizes), std::move(stage)});
  return run(ctx, chain, 0, 0, count, std::move(x));
}

std::vector<int64_t> chain_reruns(int64_t count, std::span<const int64_t> sizes) {
  std::vector<int64_t> runs(static_cast<size_t>(count), 0);
  add_reruns(sizes, 0, 0, count, runs);
  return runs;
}

}  // namespace loam
