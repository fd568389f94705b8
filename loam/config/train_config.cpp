#include "loam/config/train_config.h"

#include <cmath>

#include "loam/base/log.h"

namespace loam {

const std::vector<std::pair<ComputeDtype, const char*>>& enum_names(ComputeDtype) {
  static const std::vector<std::pair<ComputeDtype, const char*>> names{{ComputeDtype::f32, "f32"},
                                                                       {ComputeDtype::bf16, "bf16"}};
  return names;
}

const std::vector<std::pair<ScheduleKind, const char*>>& enum_names(ScheduleKind) {
  static const std::vector<std::pair<ScheduleKind, const char*>> names{
      {ScheduleKind::cosine, "cosine"}, {ScheduleKind::wsd, "wsd"}, {ScheduleKind::constant, "constant"}};
  return names;
}

namespace {

constexpr int64_t kMaxCount = int64_t{1} << 40;

void check_range(const char* name, int64_t value, int64_t low, int64_t high = kMaxCount) {
  LOAM_CHECK(value >= low && value <= high, "{} is {}; it must lie in [{}, {}]", name, value, low, high);
}

// low <= value < high, and finite.
void check_number(const char* name, double value, double low, double high) {
  LOAM_CHECK(std::isfinite(value) && value >= low && value < high, "{} is {}; it must lie in [{}, {})", name, value,
             low, high);
}

void check_optimizer(const OptimizerConfig& c, int64_t steps) {
  LOAM_CHECK(std::isfinite(c.lr) && c.lr > 0, "optimizer.lr is {}; it must be positive", c.lr);
  LOAM_CHECK(c.min_lr_ratio >= 0 && c.min_lr_ratio <= 1, "optimizer.min_lr_ratio is {}; it must lie in [0, 1]",
             c.min_lr_ratio);
  LOAM_CHECK(c.decay_fraction >= 0 && c.decay_fraction <= 1, "optimizer.decay_fraction is {}; it must lie in [0, 1]",
             c.decay_fraction);
  check_range("optimizer.warmup_steps", c.warmup_steps, 0);
  check_number("optimizer.beta1", c.beta1, 0, 1);
  check_number("optimizer.beta2", c.beta2, 0, 1);
  LOAM_CHECK(std::isfinite(c.eps) && c.eps > 0, "optimizer.eps is {}; it must be positive", c.eps);
  check_number("optimizer.weight_decay", c.weight_decay, 0, HUGE_VAL);
  check_number("optimizer.weight_decay_vectors", c.weight_decay_vectors, 0, HUGE_VAL);
  check_number("optimizer.clip_norm", c.clip_norm, 0, HUGE_VAL);
  if (c.warmup_steps > steps) {
    log_warn("optimizer.warmup_steps ({}) exceeds steps ({}): the learning rate never reaches optimizer.lr",
             c.warmup_steps, steps);
  }
}

}  // namespace

TrainConfig derive(TrainConfig c) {
  constexpr int64_t kMaxRows = int64_t{1} << 24;
  c.model = derive(c.model);
  if (c.data.length == 0) c.data.length = c.model.context_length;
  LOAM_CHECK(c.data.length >= 1 && c.data.length <= c.model.context_length,
             "data.length is {}; it must lie in [1, {}], model.context_length", c.data.length, c.model.context_length);
  check_range("steps", c.steps, 1);
  check_range("batch", c.batch, 1, kMaxRows);
  if (c.micro_batch == 0) c.micro_batch = c.batch;
  check_range("micro_batch", c.micro_batch, 1, kMaxRows);
  LOAM_CHECK(c.batch % c.micro_batch == 0, "batch ({}) is not a multiple of micro_batch ({})", c.batch, c.micro_batch);
  check_optimizer(c.optimizer, c.steps);
  check_range("seed", c.seed, 0, INT64_MAX);
  check_range("log_every", c.log_every, 1);
  check_range("val_every", c.val_every, 0);
  check_range("val_rows", c.val_rows, 0);
  check_range("save_every", c.save_every, 0);
  check_range("keep_last", c.keep_last, 1);
  check_range("sample_every", c.sample_every, 0);
  check_range("sample_tokens", c.sample_tokens, 1, kMaxRows);
  return c;
}

}  // namespace loam
