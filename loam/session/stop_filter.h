// Stop strings on a stream of text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace loam {

// Lets text through up to the first stop string (the earliest; of those that start together, any: the text before is
// the same), holding back only what may still become one.
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
