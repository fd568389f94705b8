// Properties of the characters of Unicode 15.0, as the pre-tokenizers need them. Tables: unicode_tables.inc, made by
// tools/make_unicode_tables.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace loam {

// General_Category; kCn is "unassigned".
enum class Category : uint8_t {
  // clang-format off
  kLu, kLl, kLt, kLm, kLo, kMn, kMc, kMe, kNd, kNl, kNo, kPc, kPd, kPs, kPe, kPi, kPf, kPo,
  kSm, kSc, kSk, kSo, kZs, kZl, kZp, kCc, kCf, kCs, kCo, kCn,
  // clang-format on
};
inline constexpr int kNumCategories = 30;

extern const uint8_t kPropertyRowOfBlock[];
extern const uint8_t kPropertyRows[];

// One byte for all that is known of a character. Any value is allowed; those past 0x10FFFF are unassigned.
class CharProperties {
 public:
  constexpr explicit CharProperties(uint8_t bits) : bits_(bits) {}
  static CharProperties of(uint32_t code_point) {
    if (code_point > 0x10FFFF) return CharProperties(static_cast<uint8_t>(Category::kCn));
    return CharProperties(kPropertyRows[kPropertyRowOfBlock[code_point >> 7] * 128 + (code_point & 127)]);
  }
  constexpr Category category() const { return static_cast<Category>(bits_ & 31); }
  constexpr bool white_space() const { return bits_ & 32; }
  constexpr bool han() const { return bits_ & 64; }  // property Script
  constexpr bool alphabetic() const { return bits_ & 128; }
  constexpr uint8_t bits() const { return bits_; }

 private:
  uint8_t bits_;
};

// A set of general categories, one bit each.
using CategorySet = uint32_t;
// The categories that a name of one or two letters means ("L", "Lu"); none for another name.
std::optional<CategorySet> category_set(std::string_view name);

enum class CharClass : uint8_t {
  kOther,
  kLetter,  // general category L*
  kNumber,  // general category N*
  kSpace,   // property White_Space
};

CharClass char_class(uint32_t code_point);

}  // namespace loam
