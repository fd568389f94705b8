// Every file of CUDA kernels puts its functions into the table.
#pragma once

#include "loam/kernels/kernel_table.h"

namespace loam::cuda {

void register_elementwise_kernels(KernelTable& table);
void register_matmul_kernels(KernelTable& table);
void register_embedding_kernels(KernelTable& table);
void register_norm_kernels(KernelTable& table);
void register_rope_kernels(KernelTable& table);
void register_attention_fwd_kernels(KernelTable& table);
void register_attention_bwd_kernels(KernelTable& table);
void register_activation_kernels(KernelTable& table);
void register_dropout_kernels(KernelTable& table);
void register_cross_entropy_kernels(KernelTable& table);
void register_optimizer_kernels(KernelTable& table);
void register_orthogonalize_kernels(KernelTable& table);

}  // namespace loam::cuda
