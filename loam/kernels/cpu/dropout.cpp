#include "loam/kernels/dropout.h"

#include <algorithm>

#include "loam/base/parallel_for.h"
#include "loam/kernels/cpu/register.h"
#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

constexpr int64_t kPiece = 4096;  // elements of a row that one thread takes at a time; a multiple of a block's four

template <class T>
void drop(const DropoutArgs& a, const PhiloxStream& stream, int64_t row, int64_t begin, int64_t end) {
  const T* in = a.in.ptr<T>() + row * a.in.stride(0);
  T* out = a.out.ptr<T>() + row * a.out.stride(0);
  const uint32_t bound = dropout_bound(a.probability);
  const float kept = 1 / (1 - a.probability);
  for (int64_t i = begin; i < end; i += 4) {
    const auto block = stream.block(static_cast<uint64_t>(i / 4));
    for (int64_t k = i; k < std::min(i + 4, end); ++k) {
      const float value = block[static_cast<size_t>(k - i)] < bound ? 0 : static_cast<float>(in[k]) * kept;
      out[k] = T(a.accumulate ? static_cast<float>(out[k]) + value : value);
    }
  }
}

void dropout(const ExecContext& ctx, const DropoutArgs& a) {
  const auto [B, n] = a.in.dims<2>();
  const int64_t width = n, pieces = (n + kPiece - 1) / kPiece;
  parallel_for(ctx.threads, B * pieces, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t row = piece / pieces, begin = piece % pieces * kPiece, end = std::min(begin + kPiece, width);
      const PhiloxStream stream = dropout_stream(ctx, a.site, row);
      visit_float(a.in.dtype, "dropout", [&](auto type) { drop<decltype(type)>(a, stream, row, begin, end); });
    }
  });
}

}  // namespace

void register_dropout_kernels(KernelTable& table) { table.dropout.function = dropout; }

}  // namespace loam
