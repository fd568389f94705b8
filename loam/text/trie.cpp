#include "loam/text/trie.h"

#include <algorithm>
#include <string>

namespace loam {
namespace {

constexpr int kMaxTries = 64;  // places looked at for the children of one node

}  // namespace

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  entries.erase(std::unique(entries.begin(), entries.end(), same), entries.end());
  nodes_[kRoot].parent = kNoParent;
  struct Range {
    size_t begin, end, depth;  // the entries that share the bytes up to a node
    uint32_t node;
  };
  std::vector<Range> open{{0, entries.size(), 0, kRoot}};
  std::string labels;
  while (!open.empty()) {
    auto [begin, end, depth, node] = open.back();
    open.pop_back();
    if (begin < end && entries[begin].first.size() == depth) {
      if (depth > 0) nodes_[node].value = entries[begin].second;
      ++begin;
    }
    labels.clear();
    for (size_t i = begin; i < end; ++i) {
      const char label = entries[i].first[depth];
      if (labels.empty() || labels.back() != label) labels += label;
    }
    if (labels.empty()) continue;
    const uint32_t base = place_children(labels);
    nodes_[node].base = base;
    for (size_t i = begin; i < end;) {
      const char label = entries[i].first[depth];
      const uint32_t child = base + static_cast<unsigned char>(label);
      const size_t first = i;
      while (i < end && entries[i].first[depth] == label) ++i;
      nodes_[child].parent = node;
      open.push_back({first, i, depth + 1, child});
    }
  }
}

// Places are tried from the first one on that may be free. After a while the end of the array is taken, so that the
// work stays linear whatever the keys.
uint32_t Trie::place_children(std::string_view labels) {
  const auto is_free = [&](uint32_t place) { return place >= nodes_.size() || nodes_[place].parent == kFree; };
  const auto byte = [](char label) { return static_cast<uint32_t>(static_cast<unsigned char>(label)); };
  while (search_from_ < nodes_.size() && !is_free(search_from_)) ++search_from_;
  uint32_t place = std::max(search_from_, byte(labels[0]) + 1), base = 0;
  int tries = 0;
  for (; tries < kMaxTries && base == 0; ++tries, ++place) {
    const uint32_t wanted = place - byte(labels[0]);
    if (std::all_of(labels.begin(), labels.end(), [&](char label) { return is_free(wanted + byte(label)); }))
      base = wanted;
  }
  if (base == 0) base = static_cast<uint32_t>(nodes_.size());
  if (tries == kMaxTries) search_from_ = std::max(search_from_, place - kMaxTries / 2);
  nodes_.resize(std::max<size_t>(nodes_.size(), size_t{base} + 257));
  return base;
}

int32_t Trie::find(std::string_view key) const {
  uint32_t node = kRoot;
  for (const char byte : key) {
    if (!step(node, byte)) return -1;
  }
  return value(node);
}

}  // namespace loam
