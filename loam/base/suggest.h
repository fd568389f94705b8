// "did you mean ...?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace loam {

// The candidate nearest to `name` by edit distance, or "" if none is near (distance > a third of the length, at least
// 2, or no letter kept; nor is `name` its first half or more, or its first words).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// "" if `word` is one of `words`, else what is wrong: "'wrod' is none of word, words; did you mean word?".
std::string problem_among(const std::string& word, const std::vector<std::string>& words);

}  // namespace loam
