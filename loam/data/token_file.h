// Files of token ids that other programs write: one array, little-endian.
//
//   bin-u16, bin-u32  nothing but the ids: numpy's tofile() or memmap, as nanoGPT writes them
//   npy               numpy.save of a one-dimensional array of u2, u4, i4 or i8; versions 1, 2 and 3
//   llmc              llm.c's and modded-nanogpt's .bin: 256 int32 {magic, version, tokens}, then u16 ids (magic
//   20240520,
//                     version 1) or u32 (20240801, 7)
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loam/base/file.h"

namespace loam {

enum class TokenFileFormat { automatic, bin_u16, bin_u32, npy, llmc };

// Where the ids lie, and how many bytes each has: 2, 4 or 8.
struct TokenFileLayout {
  int64_t offset = 0, tokens = 0, token_bytes = 2;
  bool goes_on = false;    // a part of several: its last document may go on in the next file
  bool is_signed = false;  // of 4 bytes; those of 8 always are
  bool operator==(const TokenFileLayout&) const = default;
};

inline constexpr int64_t kTokenFileFront = 1 << 20;  // bytes that tell any layout; a longer header is refused

// The layout of a file of `file_bytes` that begins with `front` (kTokenFileFront bytes, or all). `automatic` knows npy
// and llmc by their first bytes and refuses text; what is left is bin-u32 if the vocabulary needs it or every second
// 16-bit number is 0, else bin-u16. Error{kBadFormat} that names the file for a header that is damaged, of another
// kind, or does not agree with the size.
TokenFileLayout token_file_layout(std::string_view front, int64_t file_bytes, TokenFileFormat format,
                                  int64_t vocab_size, const std::string& name);

// Reads the ids in order, in constant memory.
class TokenFile {
 public:
  // Error{kNotFound, kIo, kBadFormat}.
  TokenFile(Path path, TokenFileFormat format, int64_t vocab_size);

  const std::string& name() const { return name_; }
  const TokenFileLayout& layout() const { return layout_; }
  // Fills the front of `out`; returns how many, 0 at the end. Error{kBadFormat} for an id outside the vocabulary, {kIo}
  // if the file was cut meanwhile.
  int64_t read(std::span<int32_t> out);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string name_;
  std::unique_ptr<std::FILE, Close> file_;
  TokenFileLayout layout_;
  int64_t vocab_size_, next_ = 0;  // next_: index of the id that is read next
  std::vector<char> buffer_;
};

}  // namespace loam
