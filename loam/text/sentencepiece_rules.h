// What SentencePiece does to text before it is cut: for the files that hold its models.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loam/text/normalizer.h"

namespace loam {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, which stands for a space in tokens

// The steps of SentencePiece's normalizer.cc: the compiled table, unless empty, and spaces. With `remove_extra_spaces`
// those at the ends are dropped and several in a row are one; a U+2581 of the text is a space that is not merged with
// those beside it, but dropped at the end. The table leaves the strings `kept` as they are. Error{kBadFormat} for a bad
// table.
Normalizer sentencepiece_normalizer(std::string charsmap, std::vector<std::string> kept, bool remove_extra_spaces,
                                    bool escape_spaces);

// `text` with a space for each U+2581, and the other way round.
std::string with_plain_spaces(std::string_view text);
std::string with_space_marks(std::string_view text);

}  // namespace loam
