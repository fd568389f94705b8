#include "loam/kernels/cpu/register.h"
#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

KernelTable make_table() {
  KernelTable table;
  register_elementwise_kernels(table);
  register_matmul_kernels(table);
  register_embedding_kernels(table);
  register_norm_kernels(table);
  register_rope_kernels(table);
  register_attention_fwd_kernels(table);
  register_attention_bwd_kernels(table);
  register_activation_kernels(table);
  register_cross_entropy_kernels(table);
  register_log_prob_kernels(table);
  register_dropout_kernels(table);
  register_optimizer_kernels(table);
  return table;
}

}  // namespace

const KernelTable& cpu_kernel_table() {
  static const KernelTable table = make_table();
  return table;
}

}  // namespace loam
