// Character classes of Unicode 15.0, as the pre-tokenizers need them.
#pragma once

#include <cstdint>

namespace loam {

enum class CharClass : uint8_t {
  kOther,
  kLetter,  // general category L*
  kNumber,  // general category N*
  kSpace,   // property White_Space
};

// Any value is allowed; surrogates and values past 0x10FFFF are kOther. Table: unicode_tables.inc, made by
// tools/make_unicode_tables.py.
CharClass char_class(uint32_t code_point);

}  // namespace loam
