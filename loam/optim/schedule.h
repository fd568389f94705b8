// Learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "loam/config/train_config.h"

namespace loam {

// The rate for optimizer step `step` (0, 1, ...) of `steps`. Warm-up is linear, lr * step / warmup for step < warmup,
// so step 0 has rate 0. After it,
//   cosine    min + (lr - min) (1 + cos(pi (step - warmup) / (steps - warmup))) / 2      (Loshchilov and Hutter 2017)
//   wsd       lr, then over the last decay_fraction * steps linearly down to min          (Hu et al. 2024, MiniCPM;
//   Hägele et al. 2024) constant  lr
// where min = lr * min_lr_ratio, which is also the rate of the first two from `steps` on. A warm-up longer than the run
// is cut by its end; one that reaches into the decay of wsd delays it.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps);

}  // namespace loam
