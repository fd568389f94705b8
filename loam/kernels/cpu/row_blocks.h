// Sums over rows whose result does not depend on the number of threads: each block of rows is summed by one thread,
// then the blocks in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loam/base/parallel_for.h"
#include "loam/kernels/exec_context.h"
#include "loam/tensor/view.h"

namespace loam {

// At most 64 blocks, of at least 16 rows; a function of the number of rows alone.
struct RowBlocks {
  int64_t rows = 0, size = 1, count = 0;

  explicit RowBlocks(int64_t n) : rows(n), size(std::max<int64_t>(16, (n + 63) / 64)), count((n + size - 1) / size) {}
  int64_t begin(int64_t block) const { return block * size; }
  int64_t end(int64_t block) const { return std::min(rows, (block + 1) * size); }
};

// The least number of rows worth a thread of their own, when an element costs about as much as a copy.
inline int64_t row_grain(int64_t cols) { return std::max<int64_t>(1, 8192 / std::max<int64_t>(cols, 1)); }

// run(args, begin, end) over the rows of a matrix, which threads share. Rows do not depend on each other.
template <class Args, class SomeRows>
void each_row(const ExecContext& ctx, const SomeRows& rows, void (*run)(const Args&, int64_t, int64_t),
              const Args& args) {
  parallel_for(ctx.threads, rows.rows, row_grain(rows.cols),
               [&](int64_t begin, int64_t end, int) { run(args, begin, end); });
}

}  // namespace loam
