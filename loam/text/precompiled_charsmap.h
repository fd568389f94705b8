// SentencePiece's precompiled_charsmap: strings that normalization replaces, as a double array in the format of the
// library Darts-clone. Sources: sentencepiece/src/normalizer.cc, builder.cc; darts.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loam {

// Nothing in the table is trusted: what leads outside it is no match. Thread safety: const members may be called from
// any thread.
class PrecompiledCharsmap {
 public:
  // Error{kBadFormat} for a table whose parts do not fit it.
  explicit PrecompiledCharsmap(std::string_view table);

  struct Match {
    size_t length;
    std::string_view replacement;
  };
  // The shortest or the longest string of the table that `text` begins with. A string of more than 256 bytes, or that
  // ends inside a character of `text`, is never found.
  std::optional<Match> shortest(std::string_view text) const { return find(text, false); }
  std::optional<Match> longest(std::string_view text) const { return find(text, true); }

  // True if a string of the table goes on behind `prefix`.
  bool continues(std::string_view prefix) const;
  // True if a string of the table has one of these ASCII characters behind its first byte. Walks the whole table.
  bool holds_inside(std::string_view characters) const;

 private:
  std::optional<Match> find(std::string_view text, bool longest) const;
  // The node behind `node` on this byte. Nodes are places in the double array that their children are found from.
  std::optional<uint32_t> child(uint32_t node, uint8_t byte, bool& is_key) const;
  uint32_t root() const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace loam
