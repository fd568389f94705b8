// Cutting text into the pieces inside which byte pairs may merge.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace loam {

// The GPT-2 pattern, matched left to right with the first alternative that fits:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Every byte belongs to exactly one piece; a byte that is not valid UTF-8 counts as a character of no class. Linear
// time, no allocation, no recursion.
enum class Pretokenizer { kGpt2 };

// Error{kInvalidArgument} with the known names for any other name.
Pretokenizer parse_pretokenizer(std::string_view name);
std::string_view pretokenizer_name(Pretokenizer pretokenizer);
// The regular expression, as `tokenizer.json` states it.
std::string_view pretokenizer_pattern(Pretokenizer pretokenizer);

// The length in bytes of the piece that starts at `position` < text.size().
size_t next_piece(Pretokenizer pretokenizer, std::string_view text, size_t position);

// How many bytes at the front of `text` are pieces that no continuation of the text can change. Used to cut a stream:
// the rest is held back.
size_t stable_prefix(Pretokenizer pretokenizer, std::string_view text);

// True where an ASCII character that is no white space is followed by white space: 0 < position < text.size(). Under
// every pattern here the text before and the text from `position` on can then be cut into pieces each for itself, with
// the same pieces as together.
bool is_independent_cut(std::string_view text, size_t position);

}  // namespace loam
