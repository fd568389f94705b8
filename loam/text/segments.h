// A text as added tokens and the stretches of ordinary text between them.
#pragma once

#include <cstdint>
#include <string_view>

#include "loam/text/special_matcher.h"

namespace loam {

struct Segment {
  TextRange range;
  int32_t id = -1;  // of an added token; -1: ordinary text, which is not empty
};

// From left to right; what Hugging Face's AddedVocabulary does.
class SegmentReader {
 public:
  SegmentReader(const SpecialMatcher& matcher, std::string_view text) : matcher_(matcher), text_(text) {}

  bool next(Segment& segment) {
    if (!searched_) {
      if (at_ == text_.size() && search_ == text_.size()) return false;
      found_ = matcher_.find(text_, search_, at_);
      if (found_.length == 0 && at_ == text_.size()) return false;
      searched_ = true;
      if (found_.position > at_) {
        segment = {{at_, found_.position}};
        at_ = found_.position;
        searched_ = found_.length > 0;
        if (!searched_) search_ = text_.size();
        return true;
      }
    }
    searched_ = false;
    segment = {{found_.position, found_.position + found_.length}, found_.id};
    at_ = segment.range.end;
    search_ = found_.behind;
    return true;
  }

 private:
  const SpecialMatcher& matcher_;
  std::string_view text_;
  size_t at_ = 0;      // what has been handed out
  size_t search_ = 0;  // where the next token is looked for; before at_ where the last one took white space
  SpecialMatcher::Found found_{0, 0, -1, 0};
  bool searched_ = false;
};

}  // namespace loam
