#include "loam/kernels/kernel_work.h"

#include <algorithm>

namespace loam {
namespace {

int64_t inner_size(const MatmulArgs& args) { return args.a.dim(args.transpose_a ? 0 : 1); }

std::string output_text(DType in, DType out, bool accumulate) {
  std::string text = in == out ? "" : fmt::format(" to {}", dtype_name(out));
  return accumulate ? text + " +" : text;
}

// Of forward and backward, whose views and mask have the same names.
template <class Args>
std::string attention_shape(const Args& args) {
  const auto [B, T, H, D] = args.q.template dims<4>();
  const int64_t S = args.k.dim(1), K = args.k.dim(2);
  std::string text = fmt::format("B{} T{}", B, T);
  if (S != T) text += fmt::format(" S{}", S);
  text += fmt::format(" H{}", H);
  if (K != H) text += fmt::format(" K{}", K);
  text += fmt::format(" D{}", D);
  if (args.mask.causal) text += " causal";
  if (args.mask.window > 0) text += fmt::format(" window {}", args.mask.window);
  return text;
}

template <class Args>
double attention_flops(const Args& args) {
  const auto [B, T, H, D] = args.q.template dims<4>();
  return 4 * static_cast<double>(B * H * D) * visible_pairs(args.mask, T, args.k.dim(1));
}

std::string embedding_shape(const View& rows, const View& table) {
  return fmt::format("{} of {}", rows.numel(), shape_text(table.shape));
}

}  // namespace

double visible_pairs(const AttentionMask& mask, int64_t T, int64_t S) {
  double pairs = 0;
  for (int64_t i = 0; i < T; ++i) {
    const int64_t p = i + S - T;  // its position
    const int64_t first = mask.window > 0 ? std::max<int64_t>(p - mask.window + 1, 0) : 0;
    pairs += static_cast<double>(std::max<int64_t>((mask.causal ? p + 1 : S) - first, 0));
  }
  return pairs;
}

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

std::string kernel_shape(const MatmulArgs& args) {
  return fmt::format("{} x {} x {} {}{}", args.c.dim(0), args.c.dim(1), inner_size(args), args.transpose_a ? 'T' : 'N',
                     args.transpose_b ? 'T' : 'N') +
         output_text(args.a.dtype, args.c.dtype, args.accumulate);
}
std::string kernel_shape(const CopyArgs& args) {
  return shape_text(args.in.shape) + output_text(args.in.dtype, args.out.dtype, args.accumulate);
}
std::string kernel_shape(const EmbeddingFwdArgs& args) { return embedding_shape(args.ids, args.table); }
std::string kernel_shape(const EmbeddingBwdArgs& args) { return embedding_shape(args.ids, args.d_table); }
std::string kernel_shape(const AttentionFwdArgs& args) { return attention_shape(args); }
std::string kernel_shape(const AttentionBwdArgs& args) { return attention_shape(args); }

double kernel_flops(const MatmulArgs& args) {
  return 2 * static_cast<double>(args.c.dim(0)) * static_cast<double>(args.c.dim(1)) *
         static_cast<double>(inner_size(args));
}
double kernel_flops(const AttentionFwdArgs& args) { return attention_flops(args); }
double kernel_flops(const AttentionBwdArgs& args) { return 2.5 * attention_flops(args); }
double kernel_flops(const OrthogonalizeArgs& args) {
  const auto [R, C] = args.x.dims<2>();
  const auto r = static_cast<double>(std::min(R, C)), c = static_cast<double>(std::max(R, C));
  return args.steps * (4 * r * r * c + 2 * r * r * r);
}

double kernel_bytes(const EmbeddingFwdArgs& args) {
  return static_cast<double>(args.ids.numel() * dtype_size(args.ids.dtype) +
                             2 * args.out.numel() * dtype_size(args.out.dtype));
}
double kernel_bytes(const EmbeddingBwdArgs& args) {
  const int64_t rows = args.d_out.numel(), kept = args.accumulate ? 2 * rows : args.d_table.numel();
  return static_cast<double>(args.ids.numel() * dtype_size(args.ids.dtype) + rows * dtype_size(args.d_out.dtype) +
                             kept * dtype_size(args.d_table.dtype));
}

}  // namespace loam
