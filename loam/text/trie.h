// Tokens by their bytes, as a double array (Aoe, IEEE Transactions on Software Engineering 15(9), 1989): a step is one
// addition and one comparison.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace loam {

// Thread safety: const members may be called from any thread.
class Trie {
 public:
  Trie() = default;
  // Of equal keys the first counts; empty ones are left out. The keys are read only here.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> entries);

  static constexpr uint32_t kRoot = 0;
  // Goes from `node` along `byte`; false, and `node` as it was, if no key goes on like that.
  bool step(uint32_t& node, char byte) const {
    const uint32_t next = nodes_[node].base + static_cast<unsigned char>(byte);
    if (nodes_[next].parent != node) return false;
    node = next;
    return true;
  }
  int32_t value(uint32_t node) const { return nodes_[node].value; }  // -1 where no key ends
  // The value of a whole key; -1 if it is none.
  int32_t find(std::string_view key) const;
  // The longest key that `text` begins with: its length, 0 if there is none, and its value.
  std::pair<size_t, int32_t> longest(std::string_view text) const {
    std::pair<size_t, int32_t> best{0, -1};
    uint32_t node = kRoot;
    for (size_t i = 0; i < text.size() && step(node, text[i]); ++i) {
      if (value(node) >= 0) best = {i + 1, value(node)};
    }
    return best;
  }

 private:
  static constexpr uint32_t kFree = 0xFFFFFFFF, kNoParent = 0xFFFFFFFE;
  struct Node {
    uint32_t base = 0;  // of the places of its children; there are always 256 places behind a base
    uint32_t parent = kFree;
    int32_t value = -1;
  };
  uint32_t place_children(std::string_view labels);

  std::vector<Node> nodes_ = std::vector<Node>(257);
  uint32_t search_from_ = 1;  // while it is built
};

}  // namespace loam
