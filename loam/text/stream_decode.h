// Token ids to text as they arrive: holds back the bytes of an incomplete character.
#pragma once

#include <string>
#include <string_view>

#include "loam/text/tokenizer.h"

namespace loam {

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  // The text that became certain; malformed bytes become U+FFFD. The parts joined equal the decoding of all ids at
  // once.
  std::string push(int32_t id);
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string held_;
};

}  // namespace loam
