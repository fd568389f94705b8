#include "loam/base/suggest.h"

#include <algorithm>
#include <numeric>

namespace loam {
namespace {

// Levenshtein's distance: insertions, deletions and substitutions, one row of the table at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.empty()) return "";
  const size_t limit = std::min(std::max<size_t>(2, name.size() / 3), name.size() - 1);
  size_t best = limit + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    // The lengths alone bound the distance from below: a hostile name costs no long table.
    if (std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size()) >= best) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  if (!nearest.empty()) return nearest;
  for (const std::string& candidate : candidates) {
    if (!candidate.starts_with(name)) continue;
    const bool half = name.size() >= 3 && candidate.size() <= 2 * name.size();
    const bool words = candidate[name.size()] == '_' || candidate[name.size()] == '-';
    if ((half || words) && (nearest.empty() || candidate.size() < nearest.size())) nearest = candidate;
  }
  return nearest;
}

std::string problem_among(const std::string& word, const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return "";
  std::string list;
  for (const std::string& each : words) list += (list.empty() ? "" : ", ") + each;
  const std::string near = nearest_name(word, words);
  return "'" + word + "' is none of " + list + (near.empty() ? "" : "; did you mean " + near + "?");
}

}  // namespace loam
