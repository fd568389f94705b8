// Any bytes as the steps of a normalizer, a precompiled_charsmap and a text: refused, or origins that ascend within the
// text, the same result without them, and parts that are those of the whole where it says so.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/utf8.h"
#include "loam/text/normalizer.h"
#include "loam/text/unicode.h"

namespace {

using namespace loam;

NormalizerStep step_of(uint8_t byte, const std::string& table) {
  const bool a = byte & 16, b = byte & 32, c = byte & 64, d = byte & 128;
  switch (byte & 15) {
    case 0:
      return normal::UnicodeForm{a, b};
    case 1:
      return normal::Lowercase{};
    case 2:
      return normal::StripAccents{};
    case 3:
      return normal::Strip{a, b};
    case 4:
      return normal::Prepend{a ? "\u2581" : " "};
    case 5:
      return normal::Bert{a, b, c, d};
    case 6:
      return normal::Nmt{};
    case 7:
      return normal::Replace{a ? " " : b ? "  " : "", c ? "\u2581" : d ? "a\u0301" : "", false};
    case 8:
      return normal::Replace{a ? " {2,}" : b ? "\\s+" : "\\p{M}*", c ? " " : d ? "_" : "", true};
    case 9:
      return normal::Replace{table.substr(0, 4), table.substr(table.size() / 2), a};
    default:
      return normal::Precompiled{table, a};
  }
}

// Where cuts_before_spaces() speaks of.
bool may_cut(const std::string& text, size_t at) {
  if (text[at] != ' ' && text[at] != '\n' && text[at] != '\r') return false;
  size_t begin = at - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  const Utf8Char c = decode_utf8(text, begin);
  return c.valid && begin + static_cast<size_t>(c.length) == at &&
         CharProperties::of(c.code_point).category() < Category::kZs;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 6) return 0;
  const size_t table_size = data[4] | static_cast<size_t>(data[5]) << 8;
  const std::string rest(reinterpret_cast<const char*>(data) + 6, size - 6);
  const std::string table = rest.substr(0, table_size), text = rest.substr(table.size());
  try {
    const Normalizer normalizer(
        {step_of(data[0], table), step_of(data[1], table), step_of(data[2], table), step_of(data[3], table)});
    std::vector<TextRange> origins;
    const std::string result = normalizer.apply(text, origins);
    if (result != normalizer.apply(text) || origins.size() != result.size()) std::abort();
    TextRange before;
    for (const TextRange range : origins) {
      if (range.begin > range.end || range.end > text.size()) std::abort();
      if (range.begin < before.begin || range.end < before.end) std::abort();
      before = range;
    }
    if (!normalizer.cuts_before_spaces()) return 0;
    for (size_t at = 1; at < text.size(); ++at) {
      if (!may_cut(text, at)) continue;
      if (normalizer.apply(text.substr(0, at)) + normalizer.apply(text.substr(at)) != result) std::abort();
      break;
    }
  } catch (const Error&) {
  }
  return 0;
}
