#include "loam/nn/sequence.h"

namespace loam {

Var FullSequence::attend(const Context& ctx, int, const Var& q, const Var& k, const Var& v,
                         const ops::AttentionOptions& options) {
  ops::AttentionOptions masked = options;
  masked.first_key = first_key_;
  return ops::attention(ctx, q, k, v, masked);
}

}  // namespace loam
