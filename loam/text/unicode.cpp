#include "loam/text/unicode.h"

namespace loam {

#include "loam/text/unicode_tables.inc"

std::optional<CategorySet> category_set(std::string_view name) {
  constexpr std::string_view kNames = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn";
  if (name.empty() || name.size() > 2) return std::nullopt;
  CategorySet set = 0;
  for (int i = 0; i < kNumCategories; ++i) {
    if (kNames.substr(2 * i, name.size()) == name) set |= CategorySet{1} << i;
  }
  if (set == 0) return std::nullopt;
  return set;
}

CharClass char_class(uint32_t code_point) {
  const CharProperties properties = CharProperties::of(code_point);
  const CategorySet category = CategorySet{1} << static_cast<int>(properties.category());
  if (category & *category_set("L")) return CharClass::kLetter;
  if (category & *category_set("N")) return CharClass::kNumber;
  return properties.white_space() ? CharClass::kSpace : CharClass::kOther;
}

}  // namespace loam
