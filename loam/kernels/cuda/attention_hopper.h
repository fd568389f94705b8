// Attention for Hopper GPUs.
#pragma once

#include "loam/kernels/attention.h"

namespace loam::cuda {

// False, and nothing was done, if this is no Hopper GPU or the call is not of the kernel's kind: bf16, head dims to
// 128, places and strides that the copy engine takes, no dropout, no slopes, no max_logit.
bool hopper_attention_fwd(const ExecContext& ctx, const AttentionFwdArgs& args);

struct AttentionParams;

// The same of the backward pass, without soft cap, gradients that are added, and levels above fast. Sets `bad`, in the
// device's memory, to 1 if some gradient is not finite, else to 0: then another kernel must make them all again.
bool hopper_attention_bwd(const ExecContext& ctx, const AttentionBwdArgs& args, const AttentionParams& params,
                          int* bad);

}  // namespace loam::cuda
