#include "loam/text/precompiled_charsmap.h"

#include <bit>
#include <cstring>

#include "loam/base/error.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr size_t kMostKeyBytes = 256;
constexpr uint32_t kLabelBits = 0x800000FF, kValueBits = 0x7FFFFFFF, kKeyEnds = 1 << 8, kFarOffset = 1 << 9;

uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & kFarOffset) >> 6); }

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

PrecompiledCharsmap::PrecompiledCharsmap(std::string_view table) {
  static_assert(std::endian::native == std::endian::little);
  uint32_t bytes = 0;
  if (table.size() < sizeof(bytes)) {
    fail(ErrorCode::kBadFormat, "precompiled_charsmap: {} bytes are too few", table.size());
  }
  std::memcpy(&bytes, table.data(), sizeof(bytes));
  const std::string_view parts = table.substr(sizeof(bytes));
  if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes > parts.size()) {
    fail(ErrorCode::kBadFormat, "precompiled_charsmap: a double array of {} bytes in a table of {}", bytes,
         table.size());
  }
  units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), parts.data(), bytes);
  replacements_ = parts.substr(bytes);
}

uint32_t PrecompiledCharsmap::root() const { return offset_of(units_[0]); }

std::optional<uint32_t> PrecompiledCharsmap::child(uint32_t node, uint8_t byte, bool& is_key) const {
  const uint32_t at = node ^ byte;
  if (byte == 0 || at >= units_.size() || (units_[at] & kLabelBits) != byte) return {};
  is_key = units_[at] & kKeyEnds;
  return at ^ offset_of(units_[at]);
}

std::optional<PrecompiledCharsmap::Match> PrecompiledCharsmap::find(std::string_view text, bool longest) const {
  std::optional<Match> found;
  uint32_t node = root();
  for (size_t i = 0; i < text.size() && i < kMostKeyBytes; ++i) {
    bool is_key = false;
    const std::optional<uint32_t> next = child(node, static_cast<uint8_t>(text[i]), is_key);
    if (!next) break;
    node = *next;
    if (!is_key || node >= units_.size()) continue;
    const uint32_t place = units_[node] & kValueBits;
    if (place > replacements_.size()) continue;
    if (i + 1 < text.size() && continues_character(text[i + 1])) continue;
    const std::string_view replacement = std::string_view(replacements_).substr(place);
    found = Match{i + 1, replacement.substr(0, replacement.find('\0'))};
    if (!longest) break;
  }
  return found;
}

bool PrecompiledCharsmap::continues(std::string_view prefix) const {
  uint32_t node = root();
  bool is_key = false;
  for (const char c : prefix) {
    const std::optional<uint32_t> next = child(node, static_cast<uint8_t>(c), is_key);
    if (!next) return false;
    node = *next;
  }
  for (int byte = 1; byte < 256; ++byte) {
    if (child(node, static_cast<uint8_t>(byte), is_key)) return true;
  }
  return false;
}

bool PrecompiledCharsmap::holds_inside(std::string_view characters) const {
  constexpr uint32_t kBlock = 256;  // a node has its children within its block
  std::vector<bool> seen((units_.size() + kBlock - 1) / kBlock * kBlock);
  std::vector<uint32_t> waiting{root()};
  for (bool first = true; !waiting.empty(); first = false) {
    const uint32_t node = waiting.back();
    waiting.pop_back();
    const uint32_t block = node / kBlock * kBlock;
    for (uint32_t at = block; at < block + kBlock && at < units_.size(); ++at) {
      const uint32_t byte = at ^ node;
      if (byte == 0 || (units_[at] & kLabelBits) != byte) continue;
      if (!first && characters.find(static_cast<char>(byte)) != std::string_view::npos) return true;
      const uint32_t next = at ^ offset_of(units_[at]);
      if (next >= seen.size() || seen[next]) continue;
      seen[next] = true;
      waiting.push_back(next);
    }
  }
  return false;
}

}  // namespace loam
