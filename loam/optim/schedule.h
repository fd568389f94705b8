// Learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "loam/config/train_config.h"

namespace loam {

// The rate for optimizer step `step` (0, 1, ...) of `steps`. Warm-up is linear, lr * step / warmup for step < warmup,
// so step 0 has rate 0. After it, with min = lr * min_lr_ratio,
//   cosine        min + (lr - min) (1 + cos(pi p)) / 2, p = (step - warmup) / (end - warmup), where end is decay_until
//                 if that is set (nanoGPT's lr_decay_iters) and `steps` otherwise
//                 (Loshchilov and Hutter 2017)
//   linear        lr - (lr - min) p                     (torch's LinearLR after warm-up)
//   wsd           lr, then over the last decay_steps of `steps` min + (lr - min) f(q): q goes from 0 to 1, and f is
//                 1 - q, 1 - sqrt(q) or (1 + cos(pi q)) / 2       (Hu et al. 2024, MiniCPM; Hägele et al. 2024)
//   inverse_sqrt  lr sqrt(warmup / step), at least min; a warm-up of 0 counts as 1   (Vaswani et al. 2017)
//   constant      lr
// The first two are at min from `end` on, wsd from `steps` on; the last two do not depend on `steps`. A warm-up longer
// than the run is cut by its end; one that reaches into the decay of wsd delays it.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps);

}  // namespace loam
