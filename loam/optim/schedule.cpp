#include "loam/optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace loam {

double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps) {
  const double lr = config.lr, min = lr * config.min_lr_ratio;
  if (step < config.warmup_steps) return lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  if (config.schedule == ScheduleKind::constant) return lr;
  if (step >= steps) return min;

  const auto at = static_cast<double>(step), warmup = static_cast<double>(config.warmup_steps),
             end = static_cast<double>(steps);
  if (config.schedule == ScheduleKind::cosine) {
    return min + (lr - min) * (1 + std::cos(M_PI * (at - warmup) / (end - warmup))) / 2;
  }
  const double decay = std::max(end - config.decay_fraction * end, warmup);  // the step at which the decay begins
  return at <= decay ? lr : lr - (lr - min) * (at - decay) / (end - decay);
}

}  // namespace loam
