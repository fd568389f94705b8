// Any bytes: decode_utf8() and all that is built on it equal a decoder made of the definition alone.
#include <algorithm>
#include <cstdlib>

#include "loam/base/utf8.h"

namespace {

// The lead byte's pattern says how many bytes a character has; 0 for a byte that leads none.
int length_of(uint8_t lead) {
  return lead < 0x80 ? 1 : lead >> 5 == 0b110 ? 2 : lead >> 4 == 0b1110 ? 3 : lead >> 3 == 0b11110 ? 4 : 0;
}

// Whether the first `count` bytes at `at` begin a character: whether, of the code points that continuations lead to,
// one is a Unicode scalar value that needs so many bytes. `least` becomes the lowest of them all.
bool begins_character(std::string_view text, size_t at, int count, uint32_t& least) {
  const auto byte = [&](int i) { return static_cast<uint8_t>(text[at + static_cast<size_t>(i)]); };
  const int length = length_of(byte(0));
  if (length == 0 || count > length || at + static_cast<size_t>(count) > text.size()) return false;
  least = length == 1 ? byte(0) : byte(0) & ((1u << (7 - length)) - 1);
  for (int i = 1; i < count; ++i) {
    if (byte(i) >> 6 != 0b10) return false;
    least = least << 6 | (byte(i) & 0x3F);
  }
  const int missing = 6 * (length - count);
  least <<= missing;
  const uint32_t shortest[] = {0, 0x80, 0x800, 0x10000, 0x110000};
  const uint32_t first = std::max(least, shortest[length - 1]);
  const uint32_t last = std::min(least | ((1u << missing) - 1), shortest[length] - 1);
  return first <= last && !(first >= 0xD800 && last <= 0xDFFF);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string replaced;
  size_t open = 0;  // bytes of the character that the text ends in
  for (size_t at = 0; at < size;) {
    int length = 0;
    uint32_t code_point = 0, least = 0;
    while (begins_character(text, at, length + 1, least)) {
      ++length;
      code_point = least;
    }
    const bool valid = length > 0 && length == length_of(data[at]);
    if (!valid) code_point = 0xFFFD;
    if (!valid && length > 0 && at + static_cast<size_t>(length) == size) open = static_cast<size_t>(length);
    length = std::max(length, 1);
    const Utf8Char c = decode_utf8(text, at);
    if (c.valid != valid || c.length != length || c.code_point != code_point) std::abort();
    std::string written;
    append_utf8(written, code_point);
    if (valid && written != text.substr(at, static_cast<size_t>(length))) std::abort();
    replaced += valid ? written : "\xEF\xBF\xBD";
    at += static_cast<size_t>(length);
  }
  if (replace_invalid_utf8(text) != replaced) std::abort();
  if (incomplete_utf8_suffix(text) != open) std::abort();
  return 0;
}
