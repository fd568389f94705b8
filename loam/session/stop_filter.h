// Stop strings on a stream of text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace loam {

// Lets text through up to the stop string that is complete first (of those that end together, the longest), holding
// back only what may still become one. The result does not depend on how the text is cut into pushes.
class StopFilter {
 public:
  // Error{kInvalidArgument} for an empty stop string.
  explicit StopFilter(std::vector<std::string> stops);
  std::string push(std::string_view text);  // what is certain; nothing more after stopped()
  std::string finish();                     // what was held back, once no more text comes
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace loam
