// GPT-2's alphabet: each byte as one printable character, so that tokens can stand in JSON and in lines of text.
// The bytes '!' to '~', 0xA1 to 0xAC and 0xAE to 0xFF are the characters of that number; the other 68, in order, are
// U+0100, U+0101, ...
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace loam {

std::string to_byte_alphabet(std::string_view bytes);
// None if a character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace loam
