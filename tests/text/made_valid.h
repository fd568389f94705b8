// Text as PCRE2 and Hugging Face's library need it.
#pragma once

#include <string>

#include "loam/base/utf8.h"

namespace loam::testing {

// Each byte that is not UTF-8 becomes DEL, which is of no class, as loam takes such bytes.
inline std::string made_valid(std::string text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    if (!c.valid) text[i] = '\x7f';
    i += c.valid ? static_cast<size_t>(c.length) : 1;
  }
  return text;
}

}  // namespace loam::testing
