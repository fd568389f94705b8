#include "loam/nn/sequence.h"

#include "loam/ops/attention.h"

namespace loam {

Var FullSequence::attend(const Context& ctx, int, const Var& q, const Var& k, const Var& v) {
  ops::AttentionOptions options;
  options.first_key = first_key_;
  return ops::attention(ctx, q, k, v, options);
}

}  // namespace loam
