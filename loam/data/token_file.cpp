#include "loam/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

#include "loam/base/error.h"
#include "loam/base/utf8.h"
#include "loam/data/token_shard.h"

namespace loam {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are read as they lie in the file");

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr int64_t kLlmcHeader = 256 * 4;

template <class T>
T at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// What numpy writes as header: a dictionary of Python with three keys, in any order.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, const std::string& name) : text_(text), name_(name) {
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      read_value(key);
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    check(text_.empty(), "something follows the dictionary");
    check(type_ && is_fortran_ && shape_, "'descr', 'fortran_order' and 'shape' are not all there");
  }
  std::string_view type() const { return *type_; }
  const std::vector<int64_t>& shape() const { return *shape_; }

 private:
  void read_value(std::string_view key) {
    if (key == "descr") {
      check(!type_, "'descr' is there twice");
      skip_space();
      check(!text_.starts_with('['), "it holds records, not ids");
      type_ = quoted();
    } else if (key == "fortran_order") {  // of one axis both orders are the same
      check(!is_fortran_, "'fortran_order' is there twice");
      is_fortran_ = word("True") || (check(word("False"), "'fortran_order' is neither True nor False"), false);
    } else if (key == "shape") {
      check(!shape_, "'shape' is there twice");
      shape_ = tuple();
    } else {
      check(false, "its dictionary has a key besides 'descr', 'fortran_order' and 'shape'");
    }
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!take(')')) {
      skip_space();
      int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      check(error == std::errc() && size >= 0, "'shape' is no tuple of sizes");
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      if (text_.starts_with('L')) text_.remove_prefix(1);  // as Python 2 writes it
      sizes.push_back(size);
      if (take(',')) continue;
      expect(')');
      break;
    }
    return sizes;
  }

  std::string_view quoted() {
    skip_space();
    check(text_.starts_with('\'') || text_.starts_with('"'), "a text in quotation marks is missing");
    const size_t end = text_.find(text_[0], 1);
    check(end != text_.npos, "a quotation mark is not closed");
    const std::string_view found = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return found;
  }

  bool word(std::string_view expected) {
    skip_space();
    if (!text_.starts_with(expected)) return false;
    text_.remove_prefix(expected.size());
    return true;
  }
  bool take(char c) { return word({&c, 1}); }
  void expect(char c) { check(take(c), fmt::format("there is no '{}' where one belongs", c)); }
  void skip_space() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size())); }
  void check(bool ok, std::string_view what) const {
    if (!ok) fail(ErrorCode::kBadFormat, "{}: the header of this .npy: {}", name_, what);
  }

  std::string_view text_;
  const std::string& name_;
  std::optional<std::string_view> type_;
  std::optional<bool> is_fortran_;
  std::optional<std::vector<int64_t>> shape_;
};

// Whether the ids fill the file from `layout.offset` on.
void check_size(const TokenFileLayout& layout, int64_t file_bytes, const std::string& name) {
  // Without the product, which may overflow.
  const int64_t rest = file_bytes - layout.offset;
  if (rest >= 0 && rest % layout.token_bytes == 0 && rest / layout.token_bytes == layout.tokens) return;
  fail(ErrorCode::kBadFormat, "{}: {} bytes, but its header says {} ids of {} bytes from byte {} on", name, file_bytes,
       layout.tokens, layout.token_bytes, layout.offset);
}

TokenFileLayout npy_layout(std::string_view front, int64_t file_bytes, const std::string& name) {
  const auto check = [&](bool ok, const std::string& what) {
    if (!ok) fail(ErrorCode::kBadFormat, "{}: {}", name, what);
  };
  check(front.starts_with(kNpyMagic), "not a .npy file: it does not begin with \\x93NUMPY");
  check(front.size() >= 12, "a .npy that is cut off in its header");
  const int major = static_cast<uint8_t>(front[6]);
  check(major >= 1 && major <= 3 && front[7] == 0,
        fmt::format("a .npy of version {}.{}; known are 1.0, 2.0 and 3.0", major, static_cast<uint8_t>(front[7])));
  const size_t begin = major == 1 ? 10 : 12;
  const size_t length = major == 1 ? at<uint16_t>(front, 8) : at<uint32_t>(front, 8);
  check(length <= static_cast<size_t>(kTokenFileFront) - begin,
        fmt::format("a .npy with a header of {} bytes", length));
  check(length <= front.size() - begin, "a .npy that is cut off in its header");
  const NpyHeader header(front.substr(begin, length), name);
  TokenFileLayout layout;
  layout.offset = static_cast<int64_t>(begin + length);
  const std::string_view type = header.type();
  layout.token_bytes = type == "<u2" ? 2 : type == "<u4" || type == "<i4" ? 4 : type == "<i8" ? 8 : 0;
  check(layout.token_bytes > 0, fmt::format("a .npy of type '{}'; ids are '<u2', '<u4', '<i4' or '<i8'", type));
  layout.is_signed = type[1] == 'i';
  check(header.shape().size() == 1, fmt::format("a .npy of {} axes; ids are one row", header.shape().size()));
  layout.tokens = header.shape()[0];
  check_size(layout, file_bytes, name);
  return layout;
}

bool has_llmc_magic(std::string_view front) {
  if (front.size() < 4) return false;
  const auto magic = at<int32_t>(front, 0);
  return magic == 20240520 || magic == 20240801;
}

TokenFileLayout llmc_layout(std::string_view front, int64_t file_bytes, const std::string& name) {
  if (!has_llmc_magic(front)) {
    fail(ErrorCode::kBadFormat, "{}: not a token file of llm.c: it begins with neither 20240520 nor 20240801", name);
  }
  if (front.size() < static_cast<size_t>(kLlmcHeader)) {
    fail(ErrorCode::kBadFormat, "{}: {} bytes, too short for llm.c's header", name, file_bytes);
  }
  const bool wide = at<int32_t>(front, 0) == 20240801;
  if (const auto version = at<int32_t>(front, 4); version != (wide ? 7 : 1)) {
    fail(ErrorCode::kBadFormat, "{}: a token file of llm.c of version {}; known is {}", name, version, wide ? 7 : 1);
  }
  const TokenFileLayout layout{kLlmcHeader, at<int32_t>(front, 8), wide ? 4 : 2, true};
  check_size(layout, file_bytes, name);
  return layout;
}

// UTF-8 without control characters but those of lines and pages. 16-bit ids that look so are two letters each.
bool looks_like_text(std::string_view front) {
  if (front.empty()) return false;
  const size_t end = front.size() - incomplete_utf8_suffix(front);
  for (size_t at = 0; at < end;) {
    const Utf8Char c = decode_utf8(front, at);
    if (!c.valid || c.code_point == 127 || (c.code_point < 32 && (c.code_point < '\t' || c.code_point > '\r'))) {
      return false;
    }
    at += static_cast<size_t>(c.length);
  }
  return true;
}

// Ids of 32 bits below 2^16 look like 16-bit ones of which every second is 0.
bool looks_wide(std::string_view front, int64_t file_bytes) {
  constexpr size_t kFewest = 64;
  if (file_bytes % 4 != 0 || front.size() < kFewest) return false;
  for (size_t i = 0; i + 4 <= front.size(); i += 4) {
    if (at<uint16_t>(front, i + 2) != 0) return false;
  }
  return true;
}

TokenFileLayout flat_layout(int64_t file_bytes, int64_t token_bytes, const std::string& name) {
  if (file_bytes % token_bytes != 0) {
    fail(ErrorCode::kBadFormat, "{}: {} bytes are no whole number of ids of {} bytes", name, file_bytes, token_bytes);
  }
  return {0, file_bytes / token_bytes, token_bytes};
}

}  // namespace

TokenFileLayout token_file_layout(std::string_view front, int64_t file_bytes, TokenFileFormat format,
                                  int64_t vocab_size, const std::string& name) {
  if (front.starts_with(kTokenShardMagic)) {
    fail(ErrorCode::kBadFormat, "{}: a token shard of loam, which needs no import", name);
  }
  if (format == TokenFileFormat::automatic) {
    if (looks_like_text(front)) {
      fail(ErrorCode::kBadFormat, "{}: looks like text, not like token ids; --format bin-u16 or bin-u32 insists", name);
    }
    format = front.starts_with(kNpyMagic)                           ? TokenFileFormat::npy
             : has_llmc_magic(front)                                ? TokenFileFormat::llmc
             : vocab_size > 65'536 || looks_wide(front, file_bytes) ? TokenFileFormat::bin_u32
                                                                    : TokenFileFormat::bin_u16;
  }
  if (format == TokenFileFormat::npy) return npy_layout(front, file_bytes, name);
  if (format == TokenFileFormat::llmc) return llmc_layout(front, file_bytes, name);
  return flat_layout(file_bytes, format == TokenFileFormat::bin_u16 ? 2 : 4, name);
}

TokenFile::TokenFile(Path path, TokenFileFormat format, int64_t vocab_size)
    : name_(path.string()), vocab_size_(vocab_size) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail(ErrorCode::kNotFound, "{}: there is no such file", name_);
  if (!std::filesystem::is_regular_file(path, error)) {
    fail(ErrorCode::kInvalidArgument, "{}: not a regular file: the size has to be known", name_);
  }
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  file_.reset(std::fopen(path.c_str(), "rbe"));
  if (error || !file_) fail(ErrorCode::kIo, "{}: cannot open: {}", name_, std::strerror(errno));
  buffer_.resize(static_cast<size_t>(std::min(size, kTokenFileFront)));
  if (std::fread(buffer_.data(), 1, buffer_.size(), file_.get()) != buffer_.size()) {
    fail(ErrorCode::kIo, "{}: cannot read", name_);
  }
  layout_ = token_file_layout({buffer_.data(), buffer_.size()}, size, format, vocab_size, name_);
  if (::fseeko(file_.get(), layout_.offset, SEEK_SET) != 0) fail(ErrorCode::kIo, "{}: cannot seek", name_);
}

int64_t TokenFile::read(std::span<int32_t> out) {
  const auto count = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(out.size()), layout_.tokens - next_));
  const auto token_bytes = static_cast<size_t>(layout_.token_bytes);
  buffer_.resize(count * token_bytes);
  if (std::fread(buffer_.data(), 1, buffer_.size(), file_.get()) != buffer_.size()) {
    fail(ErrorCode::kIo, "{}: it cannot be read to its end, or was cut meanwhile", name_);
  }
  const std::string_view bytes(buffer_.data(), buffer_.size());
  for (size_t i = 0; i < count; ++i, ++next_) {
    const int64_t id = token_bytes == 2    ? int64_t{at<uint16_t>(bytes, 2 * i)}
                       : token_bytes == 8  ? at<int64_t>(bytes, 8 * i)
                       : layout_.is_signed ? int64_t{at<int32_t>(bytes, 4 * i)}
                                           : int64_t{at<uint32_t>(bytes, 4 * i)};
    if (id < 0) fail(ErrorCode::kBadFormat, "{}: the id at {} is negative: {}", name_, next_, id);
    if (id >= vocab_size_) {
      fail(ErrorCode::kBadFormat, "{}: the id at {} is {}, outside the vocabulary of {}", name_, next_, id,
           vocab_size_);
    }
    out[i] = static_cast<int32_t>(id);
  }
  return static_cast<int64_t>(count);
}

}  // namespace loam
