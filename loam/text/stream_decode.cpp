#include "loam/text/stream_decode.h"

#include "loam/base/utf8.h"

namespace loam {

std::string StreamDecoder::push(int32_t id) {
  const std::string& bytes = tokenizer_.token_bytes(id);
  if (skip_special_ && tokenizer_.is_special(id)) return "";
  held_ += bytes;
  const size_t certain = held_.size() - incomplete_utf8_suffix(held_);
  std::string text = replace_invalid_utf8(std::string_view(held_).substr(0, certain));
  held_.erase(0, certain);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = replace_invalid_utf8(held_);
  held_.clear();
  return text;
}

}  // namespace loam
