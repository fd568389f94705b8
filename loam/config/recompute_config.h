// What the backward pass of training computes again instead of keeping it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "loam/config/fields.h"

namespace loam {

// Within each block: attention, the feed-forward block, or each on its own. In serial blocks with the norm before it.
enum class RecomputePart { none, attention, mlp, both };
const std::vector<std::pair<RecomputePart, const char*>>& enum_names(RecomputePart);
inline bool recomputes_attention(RecomputePart part) {
  return part == RecomputePart::attention || part == RecomputePart::both;
}
inline bool recomputes_mlp(RecomputePart part) { return part == RecomputePart::mlp || part == RecomputePart::both; }

struct RecomputeConfig {
  std::vector<int64_t> groups;  // layers a segment, each within the one before; empty: none
  RecomputePart part = RecomputePart::none;
};
template <class Config, class Visitor>
requires FieldsOf<Config, RecomputeConfig>
void visit_fields(Config& c, Visitor&& visit) {
  visit("groups", c.groups,
        "groups of so many layers keep only their input; a second number: a group is computed again in groups of so "
        "many, and so on; empty: everything is kept");
  visit("part", c.part, "what each block computes again of its own");
}

}  // namespace loam
