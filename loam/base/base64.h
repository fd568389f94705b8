// Base64 of RFC 4648, with padding.
#pragma once

#include <string>
#include <string_view>

namespace loam {

std::string base64_encode(std::string_view bytes);
// Error{kBadFormat} for a character that is no digit, bits left over, or wrong padding.
std::string base64_decode(std::string_view text);

}  // namespace loam
