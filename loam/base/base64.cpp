#include "loam/base/base64.h"

#include <array>
#include <cstdint>

#include "loam/base/error.h"

namespace loam {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> kValues = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return values;
}();

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string base64_decode(std::string_view text) {
  const std::string_view digits = text.substr(0, text.find_last_not_of('=') + 1);
  if (text.size() % 4 != 0 || text.size() - digits.size() > 2) fail(ErrorCode::kBadFormat, "base64: wrong padding");
  std::string bytes;
  bytes.reserve(digits.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int held = 0;  // bits that wait
  for (const char c : digits) {
    const int8_t value = kValues[static_cast<unsigned char>(c)];
    if (value < 0)
      fail(ErrorCode::kBadFormat, "base64: the character 0x{:02X} is no digit", static_cast<unsigned char>(c));
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xFF);
  }
  if ((bits & ((1u << held) - 1)) != 0) fail(ErrorCode::kBadFormat, "base64: bits are left over");
  return bytes;
}

}  // namespace loam
