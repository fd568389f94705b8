// Losses and gradients that jump, and the batches that a run leaves out because of them.
//
// A step is a spike if its loss, or the natural logarithm of its gradient's norm, lies above
//   median + threshold * max(1.4826 * MAD, 0.01)
// of the same value over the last `window` steps that were applied, once there are window / 2 of these. MAD is the
// median of the distances from the median; 1.4826 times it is the standard deviation of normal values, and unmoved by a
// few wild ones. A value that is not finite is a spike at any time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loam/base/json.h"
#include "loam/config/train_config.h"

namespace loam {

struct Spike {
  std::string what;  // "loss" or "gradient norm"
  double value = 0;  // as the step gave it, not its logarithm
  // Of the earlier steps, in the unit of `value`: the median, and the bound that was broken. None for a value that is
  // not finite.
  std::optional<double> median, bound;
  std::string message() const;  // "loss 9.1 (median 2.3, bound 3.1)"
};

class SpikeDetector {
 public:
  explicit SpikeDetector(const SpikeConfig& config) : config_(config) {}
  std::optional<Spike> judge(double loss, double grad_norm) const;
  // A step that was applied. What is not finite is left out.
  void add(double loss, double grad_norm);

  // What it remembers, bit for bit. Error{kBadFormat} for what is none; the oldest go where the window is shorter now.
  Json to_json() const;
  void from_json(const Json& json);

 private:
  SpikeConfig config_;
  std::deque<double> losses_, log_norms_;
};

// Which batches a run takes: those of the data's order one after the other, without the ranges that were left out.
// Batch b is samples [b * batch, (b + 1) * batch) of the order.
class BatchOrder {
 public:
  // The batch of the step that follows `steps` steps.
  int64_t batch_after(int64_t steps) const;
  // Batches [begin, end). REQUIRES: it begins where or after the last one left out ends.
  void leave_out(int64_t begin, int64_t end);
  const std::vector<std::pair<int64_t, int64_t>>& left_out() const { return left_out_; }

  Json to_json() const;              // [[begin, end], ...]
  void from_json(const Json& json);  // Error{kBadFormat} unless ranges of at least one batch in order
  bool operator==(const BatchOrder&) const = default;

 private:
  std::vector<std::pair<int64_t, int64_t>> left_out_;  // ascending, neighbours joined
};

}  // namespace loam
