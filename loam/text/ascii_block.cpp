#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/text/ascii_block.cpp"

#include "loam/text/ascii_block.h"

#include <cstring>

// Every instruction set's pass over the rest of this file.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace loam {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void read_block(const char* bytes, AsciiBlock& block) {
  const hn::CappedTag<uint8_t, AsciiBlock::kBytes> d;
  const auto in = [d](auto v, char first, char last) HWY_ATTR {
    const auto above = hn::Sub(v, hn::Set(d, static_cast<uint8_t>(first)));
    return hn::Eq(hn::Min(above, hn::Set(d, static_cast<uint8_t>(last - first))), above);
  };
  const auto is = [d](auto v, char c) HWY_ATTR { return hn::Eq(v, hn::Set(d, static_cast<uint8_t>(c))); };
  block = {};
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < AsciiBlock::kBytes; i += lanes) {
    const auto v = hn::LoadU(d, reinterpret_cast<const uint8_t*>(bytes) + i);
    const auto add = [d, i](uint64_t& set, auto mask) HWY_ATTR {
      uint64_t bits = 0;
      uint8_t stored[8] = {};
      hn::StoreMaskBits(d, mask, stored);
      std::memcpy(&bits, stored, sizeof(bits));
      set |= bits << i;
    };
    const auto newlines = hn::Or(is(v, '\n'), is(v, '\r')), spaces = is(v, ' ');
    add(block.letters, in(hn::Or(v, hn::Set(d, uint8_t{0x20})), 'a', 'z'));
    add(block.small, in(v, 'a', 'z'));
    add(block.digits, in(v, '0', '9'));
    add(block.spaces, spaces);
    add(block.blanks, hn::Or(spaces, hn::AndNot(newlines, in(v, '\t', '\r'))));
    add(block.newlines, newlines);
    add(block.apostrophes, is(v, '\''));
    add(block.slashes, is(v, '/'));
    add(block.foreign, hn::Eq(hn::Max(v, hn::Set(d, uint8_t{0x80})), v));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace loam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {

HWY_EXPORT(read_block);

AsciiBlock AsciiBlock::read(const char* bytes) {
  AsciiBlock block;
  HWY_DYNAMIC_DISPATCH(read_block)(bytes, block);
  return block;
}

}  // namespace loam
#endif
