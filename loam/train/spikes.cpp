#include "loam/train/spikes.h"

#include <algorithm>
#include <cmath>

namespace loam {
namespace {

constexpr double kNormalPerMad = 1.4826;  // 1 / the 75 % quantile of the normal distribution
constexpr double kLeastDeviation = 0.01;  // nats: losses of one batch over and over hardly vary
constexpr int64_t kMaxBatch = int64_t{1} << 40;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

struct Usual {
  double median, bound;
};
Usual usual(const std::deque<double>& history, double threshold) {
  std::vector<double> values(history.begin(), history.end());
  const double median = median_of(values);
  for (double& value : values) value = std::abs(value - median);
  return {median, median + threshold * std::max(kNormalPerMad * median_of(std::move(values)), kLeastDeviation)};
}

void remember(std::deque<double>& history, double value, int64_t window) {
  if (!std::isfinite(value)) return;
  history.push_back(value);
  while (static_cast<int64_t>(history.size()) > window) history.pop_front();
}

Json list_of(const std::deque<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(value);
  return list;
}

std::deque<double> values_of(const Json& list, int64_t window) {
  std::deque<double> values;
  for (const Json& value : list.as_array()) remember(values, value.as_double(), window);
  return values;
}

}  // namespace

std::string Spike::message() const {
  if (!median) return fmt::format("the {} is {}", what, std::isnan(value) ? "nan" : fmt::format("{}", value));
  return fmt::format("the {} jumps to {:.4g} (median {:.4g}, bound {:.4g})", what, value, *median, *bound);
}

std::optional<Spike> SpikeDetector::judge(double loss, double grad_norm) const {
  if (!std::isfinite(loss)) return Spike{"loss", loss, {}, {}};
  if (!std::isfinite(grad_norm)) return Spike{"gradient norm", grad_norm, {}, {}};
  const auto enough = [&](const auto& history) { return 2 * static_cast<int64_t>(history.size()) >= config_.window; };
  if (enough(losses_)) {
    const Usual u = usual(losses_, config_.threshold);
    if (loss > u.bound) return Spike{"loss", loss, u.median, u.bound};
  }
  if (enough(log_norms_)) {
    const Usual u = usual(log_norms_, config_.threshold);
    if (std::log(grad_norm) > u.bound) return Spike{"gradient norm", grad_norm, std::exp(u.median), std::exp(u.bound)};
  }
  return std::nullopt;
}

void SpikeDetector::add(double loss, double grad_norm) {
  remember(losses_, loss, config_.window);
  remember(log_norms_, std::log(grad_norm), config_.window);
}

Json SpikeDetector::to_json() const {
  return Json::Object{{"losses", list_of(losses_)}, {"log_norms", list_of(log_norms_)}};
}

void SpikeDetector::from_json(const Json& json) {
  std::deque<double> losses = values_of(json.at("losses"), config_.window);
  log_norms_ = values_of(json.at("log_norms"), config_.window);
  losses_ = std::move(losses);
}

int64_t BatchOrder::batch_after(int64_t steps) const {
  int64_t batch = steps;
  for (const auto& [begin, end] : left_out_) {
    if (batch >= begin) batch += end - begin;
  }
  return batch;
}

void BatchOrder::leave_out(int64_t begin, int64_t end) {
  LOAM_CHECK(begin < end && (left_out_.empty() || left_out_.back().second <= begin),
             "batches [{}, {}) cannot be left out here", begin, end);
  if (!left_out_.empty() && left_out_.back().second == begin) {
    left_out_.back().second = end;
  } else {
    left_out_.emplace_back(begin, end);
  }
}

Json BatchOrder::to_json() const {
  Json list = Json::array();
  for (const auto& [begin, end] : left_out_) list.push_back(Json::Array{begin, end});
  return list;
}

void BatchOrder::from_json(const Json& json) {
  BatchOrder order;
  for (const Json& range : json.as_array()) {
    const bool pair = range.as_array().size() == 2;
    const int64_t begin = pair ? range.as_array()[0].as_int() : 0, end = pair ? range.as_array()[1].as_int() : 0;
    const int64_t least = order.left_out_.empty() ? 0 : order.left_out_.back().second;
    if (begin < least || end <= begin || end > kMaxBatch)
      fail(ErrorCode::kBadFormat, "left_out: {} is no range of batches", range.dump());
    order.leave_out(begin, end);
  }
  *this = std::move(order);
}

}  // namespace loam
