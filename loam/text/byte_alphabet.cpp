#include "loam/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr int kCharacters = 256 + 68;

struct Alphabet {
  std::array<uint16_t, 256> character_of{};
  std::array<int16_t, kCharacters> byte_of{};

  constexpr Alphabet() {
    byte_of.fill(-1);
    uint16_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      character_of[byte] = printable ? static_cast<uint16_t>(byte) : next++;
      byte_of[character_of[byte]] = static_cast<int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, kAlphabet.character_of[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    if (!c.valid || c.code_point >= kCharacters || kAlphabet.byte_of[c.code_point] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of[c.code_point]);
    i += c.length;
  }
  return bytes;
}

}  // namespace loam
