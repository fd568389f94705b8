#include "loam/text/sentencepiece_rules.h"

namespace loam {

Normalizer sentencepiece_normalizer(std::string charsmap, std::vector<std::string> kept, bool remove_extra_spaces,
                                    bool escape_spaces) {
  std::vector<NormalizerStep> steps;
  const auto replace = [&](std::string pattern, std::string content, bool regex) {
    steps.push_back(normal::Replace{std::move(pattern), std::move(content), regex});
  };
  if (!charsmap.empty()) steps.push_back(normal::Precompiled{std::move(charsmap), true, std::move(kept)});
  if (remove_extra_spaces) {
    replace("\\A +", "", true);
    replace(" {2,}", " ", true);
  }
  if (escape_spaces) replace(std::string(kSpaceMark), " ", false);
  if (remove_extra_spaces) replace("(?<! ) ++\\z", "", true);  // each run of spaces is tried once
  return Normalizer(std::move(steps));
}

std::string with_plain_spaces(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool mark = text.substr(at).starts_with(kSpaceMark);
    out += mark ? ' ' : text[at];
    at += mark ? kSpaceMark.size() : 1;
  }
  return out;
}

std::string with_space_marks(std::string_view text) {
  std::string out;
  for (const char c : text) c == ' ' ? out.append(kSpaceMark) : out.append(1, c);
  return out;
}

}  // namespace loam
