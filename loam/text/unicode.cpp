#include "loam/text/unicode.h"

namespace loam {
namespace {
#include "loam/text/unicode_tables.inc"
}  // namespace

CharClass char_class(uint32_t code_point) {
  const uint32_t block = code_point >> 8;
  if (block >= sizeof(kClassRowOfBlock)) return CharClass::kOther;
  const uint32_t within = code_point & 255;
  const uint32_t quad = kClassRows[kClassRowOfBlock[block] * 64 + within / 4];
  return static_cast<CharClass>((quad >> (2 * (within % 4))) & 3);
}

}  // namespace loam
