#include "loam/optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace loam {
namespace {

double half_cosine(double part) { return (1 + std::cos(M_PI * part)) / 2; }

// What is left of the way from the peak to the end, when `part` of the decay is over.
double remaining(DecayShape shape, double part) {
  switch (shape) {
    case DecayShape::linear:
      return 1 - part;
    case DecayShape::sqrt:
      return 1 - std::sqrt(part);
    case DecayShape::cosine:
      return half_cosine(part);
  }
  fail(ErrorCode::kInternal, "schedule: a shape without a name");
}

}  // namespace

double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps) {
  const double lr = config.lr, min = lr * config.min_lr_ratio;
  if (step < config.warmup_steps) return lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  const bool is_wsd = config.schedule == ScheduleKind::wsd;
  const int64_t last = !is_wsd && config.decay_until > 0 ? config.decay_until : steps;
  const auto at = static_cast<double>(step), warmup = static_cast<double>(config.warmup_steps),
             end = static_cast<double>(last);
  if (config.schedule == ScheduleKind::constant) return lr;
  if (config.schedule == ScheduleKind::inverse_sqrt) {
    return std::max(min, lr * std::sqrt(std::max(warmup, 1.0) / std::max(at, 1.0)));
  }
  if (step >= last) return min;
  const double part = (at - warmup) / (end - warmup);
  if (config.schedule == ScheduleKind::cosine) return min + (lr - min) * half_cosine(part);
  if (config.schedule == ScheduleKind::linear) return lr - (lr - min) * part;

  const double length = config.decay_steps > 0 ? static_cast<double>(config.decay_steps) : config.decay_fraction * end;
  const double decay = std::max(end - length, warmup);  // the step at which the decay begins
  return at <= decay ? lr : min + (lr - min) * remaining(config.decay_shape, (at - decay) / (end - decay));
}

}  // namespace loam
