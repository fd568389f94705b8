#include "loam/session/stop_filter.h"

#include <algorithm>
#include <utility>

#include "loam/base/error.h"

namespace loam {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) LOAM_CHECK(!stop.empty(), "stop: a stop string is empty");
}

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t cut = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, cut)) continue;
    cut = at;
    end = at + stop.size();
  }
  if (cut != std::string::npos) {
    stopped_ = true;
    held_.resize(cut);
    return std::exchange(held_, {});
  }
  // The longest end of the text that some stop string begins with must wait.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        keep = n;
        break;
      }
    }
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

}  // namespace loam
