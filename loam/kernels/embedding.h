// Rows of a table by index. Legend: N tokens, V vocabulary, C width.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

// out[n] = table[ids[n]]. Ids are checked by the op; REQUIRES 0 <= ids[n] < V.
struct EmbeddingFwdArgs {
  View ids;    // [N], i32
  View table;  // [V,C], f32, bf16 or f16
  View out;    // [N,C], the table's dtype
};

// d_table[v] += sum of d_out[n] over n with ids[n] == v, in order of n (deterministic for any number of threads).
struct EmbeddingBwdArgs {
  View ids;                 // [N], i32
  View d_out;               // [N,C], f32, bf16 or f16
  View d_table;             // [V,C], f32
  bool accumulate = false;  // false: rows that no id names become 0
};

}  // namespace loam
