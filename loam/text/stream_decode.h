// Token ids to text as they arrive: holds back the bytes of an incomplete character.
#pragma once

#include <string>
#include <string_view>

#include "loam/text/tokenizer.h"

namespace loam {

class StreamDecoder {
 public:
  // `tokenizer` must outlive it. `skip_special`: control tokens give no text.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  // The text that became certain; malformed bytes become U+FFFD. The parts joined equal the decoding of all ids at
  // once. Error{kInvalidArgument} for an id that has no token, which changes nothing.
  std::string push(int32_t id);
  // The rest: U+FFFD if a character is incomplete. The next push() begins a new text.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string held_;
};

}  // namespace loam
