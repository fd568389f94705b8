#include "loam/kernels/cuda/register.h"

namespace loam {
namespace {

KernelTable make_table() {
  KernelTable table;
  cuda::register_elementwise_kernels(table);
  cuda::register_matmul_kernels(table);
  cuda::register_embedding_kernels(table);
  cuda::register_norm_kernels(table);
  cuda::register_rope_kernels(table);
  cuda::register_attention_fwd_kernels(table);
  cuda::register_attention_bwd_kernels(table);
  cuda::register_activation_kernels(table);
  cuda::register_dropout_kernels(table);
  cuda::register_cross_entropy_kernels(table);
  cuda::register_optimizer_kernels(table);
  cuda::register_orthogonalize_kernels(table);
  return table;
}

}  // namespace

const KernelTable& cuda_kernel_table() {
  static const KernelTable table = make_table();
  return table;
}

}  // namespace loam
