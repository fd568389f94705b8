// What a kernel call has to do, from its arguments: shape, floating-point operations, traffic. Legend as in the
// kernels' headers.
#pragma once

#include <optional>
#include <string>

#include "loam/kernels/kernel_views.h"
#include "loam/kernels/profile.h"

namespace loam {

// Pairs of a query and a key that it sees, of one row and head. Documents and lengths of rows, which lie in the
// device's memory, are not looked at: the row counts as full and as one document.
double visible_pairs(const AttentionMask& mask, int64_t T, int64_t S);

// "1024 x 768 x 3072 NT" (m, n, k; N or T for a and b as they are stored), with "to f32" where c has another dtype and
// "+" where the call adds to c.
std::string kernel_shape(const MatmulArgs& args);
std::string kernel_shape(const CopyArgs& args);          // "1024 x 768 to bf16 +"
std::string kernel_shape(const EmbeddingFwdArgs& args);  // "1024 of 50304 x 768"
std::string kernel_shape(const EmbeddingBwdArgs& args);
std::string kernel_shape(const AttentionFwdArgs& args);  // "B16 T1024 H12 D64 causal", with S and K where they differ
std::string kernel_shape(const AttentionBwdArgs& args);
std::string shape_text(const Shape& shape);  // "1024 x 768"

// A product of m x k and k x n: 2 m n k. Element-wise arithmetic does not count: memory bounds it.
double kernel_flops(const MatmulArgs& args);
// Two products of T x S x D a row and head, of the pairs that see each other: 4 D pairs (Dao 2023, FlashAttention-2,
// section 4.1); backward five products, 2.5 times as many.
double kernel_flops(const AttentionFwdArgs& args);
double kernel_flops(const AttentionBwdArgs& args);
// Each step takes x x^T, its square, and their product with x: for r <= c, 4 r^2 c + 2 r^3.
double kernel_flops(const OrthogonalizeArgs& args);

// As traffic() (loam/kernels/kernel_views.h), but of a table only the rows that ids name.
double kernel_bytes(const EmbeddingFwdArgs& args);
double kernel_bytes(const EmbeddingBwdArgs& args);

// Of a kernel without a rule of its own: its first operand, no arithmetic to speak of, and all its views.
template <class Args>
View first_view(Args args) {
  View first;
  visit_views(args, [&](const View& v, Access) {
    if (!first && v) first = v;
  });
  return first;
}
// Of the first operand that holds numbers and not indices.
template <class Args>
DType first_dtype(Args args) {
  std::optional<DType> first;
  visit_views(args, [&](const View& v, Access) {
    if (!first && v && v.dtype != DType::i32) first = v.dtype;
  });
  return first.value_or(DType::f32);
}
template <class Args>
std::string kernel_shape(const Args& args) {
  return shape_text(first_view(args).shape);
}
template <class Args>
double kernel_flops(const Args&) {
  return 0;
}
template <class Args>
double kernel_bytes(const Args& args) {
  return static_cast<double>(traffic(args));
}

template <class Args>
KernelWork kernel_work(const Args& args) {
  return {kernel_shape(args), first_dtype(args), kernel_flops(args), kernel_bytes(args)};
}

}  // namespace loam
