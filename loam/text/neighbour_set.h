// Pairs of bytes that stand side by side inside some token.
#pragma once

#include <bitset>
#include <string_view>

namespace loam {

// Between two bytes that do not, text can be cut: no token reaches across.
class NeighbourSet {
 public:
  void add_token(std::string_view token) {
    for (size_t i = 1; i < token.size(); ++i) add(token[i - 1], token[i]);
  }
  void add(char left, char right) { pairs_.set(index(left, right)); }
  bool contains(char left, char right) const { return pairs_[index(left, right)]; }

 private:
  static size_t index(char left, char right) {
    return size_t{256} * static_cast<unsigned char>(left) + static_cast<unsigned char>(right);
  }
  std::bitset<65536> pairs_;
};

}  // namespace loam
