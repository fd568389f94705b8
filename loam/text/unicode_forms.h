// The normalization forms of Unicode Standard Annex 15 (Unicode 15.0), through utf8proc.
#pragma once

#include <string_view>

#include "loam/text/normalizer_steps.h"

namespace loam {

// Time and memory grow with the input alone, however its marks are put. A character and the marks behind it that change
// together come from the range of them all.
void apply_unicode_form(normal::UnicodeForm form, std::string_view input, NormalText& output);

}  // namespace loam
