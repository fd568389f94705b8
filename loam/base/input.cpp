// Byte streams: plain files and standard input, gzip, zstd; and lines of them.
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "loam/base/error.h"
#include "loam/base/file.h"
#include "loam/base/interrupt.h"

namespace loam {
namespace {

constexpr int64_t kBlock = 256 << 10;  // bytes read at once
constexpr int kMaxWindowLog = 27;      // zstd: 128 MiB

// A file descriptor, with the first bytes kept back so that the format can be recognised on a pipe too.
class FileSource : public ByteSource {
 public:
  explicit FileSource(const Path& path) : name_(path == "-" ? "standard input" : path.string()) {
    fd_ = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) {
      fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot open: {}", name_, std::strerror(errno));
    }
  }
  ~FileSource() override {
    if (fd_ != STDIN_FILENO) ::close(fd_);
  }

  // At most `count` bytes from the front, which stay in the stream.
  std::string_view peek(int64_t count) {
    while (static_cast<int64_t>(front_.size()) < count) {
      char buffer[16];
      const int64_t got = read_descriptor({buffer, static_cast<size_t>(count) - front_.size()});
      if (got == 0) break;
      front_.append(buffer, got);
    }
    return front_;
  }

  int64_t read(std::span<char> buffer) override {
    if (front_.empty()) return read_descriptor(buffer);
    const size_t count = std::min(buffer.size(), front_.size());
    std::copy_n(front_.data(), count, buffer.data());
    front_.erase(0, count);
    return static_cast<int64_t>(count);
  }
  int64_t file_position() const override { return position_; }
  const std::string& name() const override { return name_; }

 private:
  int64_t read_descriptor(std::span<char> buffer) {
    while (true) {
      const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
      if (got >= 0) {
        position_ += got;
        return got;
      }
      if (errno != EINTR) fail(ErrorCode::kIo, "{}: cannot read: {}", name_, std::strerror(errno));
      check_interrupt();
    }
  }

  std::string name_, front_;
  int fd_ = -1;
  int64_t position_ = 0;
};

// The compressed bytes under a decoder, a block at a time.
class Block {
 public:
  explicit Block(std::unique_ptr<ByteSource> source) : source_(std::move(source)), bytes_(kBlock) {}

  // The bytes not yet consumed, after reading on if there were none; empty at the end of the file.
  std::span<const char> fill() {
    if (rest_.empty()) rest_ = std::span(bytes_).first(source_->read(bytes_));
    return rest_;
  }
  void consume(size_t count) {
    rest_ = rest_.subspan(count);
    offset_ += static_cast<int64_t>(count);
  }
  int64_t offset() const { return offset_; }  // in the file, of the first byte not consumed
  const std::string& name() const { return source_->name(); }

  [[noreturn]] void fail_here(const char* what) const {
    fail(ErrorCode::kBadFormat, "{}: {} at byte {}", name(), what, offset_);
  }

 private:
  std::unique_ptr<ByteSource> source_;
  std::vector<char> bytes_;
  std::span<const char> rest_;
  int64_t offset_ = 0;
};

// gzip (RFC 1952): a file is a sequence of members. Zero bytes after the last one are padding, as gzip(1) has it;
// anything else is an error.
class GzipSource : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> source) : block_(std::move(source)) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) fail(ErrorCode::kOutOfMemory, "{}: zlib", block_.name());
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  int64_t read(std::span<char> buffer) override {
    if (buffer.empty()) return 0;
    while (in_member_ || next_member()) {
      const int64_t got = inflate_some(buffer);
      if (got > 0) return got;
    }
    return 0;
  }
  int64_t file_position() const override { return block_.offset(); }
  const std::string& name() const override { return block_.name(); }

 private:
  // Whether another member begins here.
  bool next_member() {
    bool padded = false;
    for (auto rest = block_.fill(); !rest.empty(); rest = block_.fill()) {
      if (rest[0] != '\0') {
        if (padded || rest[0] != '\x1f') fail_after_last(block_.offset());
        inflateReset(&stream_);
        member_start_ = block_.offset();
        return in_member_ = true;
      }
      padded = true;
      block_.consume(std::find_if(rest.begin(), rest.end(), [](char c) { return c != '\0'; }) - rest.begin());
    }
    return false;
  }

  [[noreturn]] void fail_after_last(int64_t offset) const {
    fail(ErrorCode::kBadFormat, "{}: unknown data after the last gzip member at byte {}", name(), offset);
  }

  int64_t inflate_some(std::span<char> buffer) {
    const auto rest = block_.fill();
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
    stream_.avail_in = static_cast<uInt>(rest.size());
    stream_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream_.avail_out = static_cast<uInt>(std::min<size_t>(buffer.size(), 1 << 30));
    const uInt room = stream_.avail_out;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    const int64_t got = room - stream_.avail_out;
    block_.consume(rest.size() - stream_.avail_in);
    if (status == Z_STREAM_END) {
      in_member_ = false;
    } else if (got > 0) {
      return got;  // a fault is found again by the next call, once what came before it is delivered
    } else if (status == Z_MEM_ERROR) {
      fail(ErrorCode::kOutOfMemory, "{}: zlib", name());
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      // Without the two magic bytes it was no member at all.
      const bool no_member = member_start_ > 0 && stream_.total_in <= 2;
      if (no_member) fail_after_last(member_start_);
      block_.fail_here("damaged gzip data");
    } else if (rest.empty()) {
      block_.fail_here("truncated gzip data: the file ends inside a member");
    }
    return got;
  }

  Block block_;
  z_stream stream_ = {};
  bool in_member_ = true;
  int64_t member_start_ = 0;
};

// zstd (RFC 8878): a file is a sequence of frames, some of which may be skippable.
class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(std::unique_ptr<ByteSource> source) : block_(std::move(source)), context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) fail(ErrorCode::kOutOfMemory, "{}: zstd", block_.name());
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  }

  int64_t read(std::span<char> buffer) override {
    if (buffer.empty()) return 0;
    ZSTD_outBuffer out = {buffer.data(), buffer.size(), 0};
    while (out.pos == 0) {
      const auto rest = block_.fill();
      if (rest.empty() && !in_frame_) return 0;
      const int64_t frame_start = block_.offset();
      ZSTD_inBuffer in = {rest.data(), rest.size(), 0};
      const size_t status = ZSTD_decompressStream(context_.get(), &out, &in);
      block_.consume(in.pos);
      if (ZSTD_isError(status)) {
        const ZSTD_ErrorCode code = ZSTD_getErrorCode(status);
        if (code == ZSTD_error_prefix_unknown) {
          fail(ErrorCode::kBadFormat, "{}: unknown data after the last zstd frame at byte {}", name(), frame_start);
        }
        if (code == ZSTD_error_memory_allocation) fail(ErrorCode::kOutOfMemory, "{}: zstd", name());
        fail(ErrorCode::kBadFormat, "{}: damaged zstd data near byte {}: {}", name(), block_.offset(),
             ZSTD_getErrorName(status));
      }
      in_frame_ = status != 0;
      if (rest.empty() && out.pos == 0) block_.fail_here("truncated zstd data: the file ends inside a frame");
    }
    return static_cast<int64_t>(out.pos);
  }
  int64_t file_position() const override { return block_.offset(); }
  const std::string& name() const override { return block_.name(); }

 private:
  struct FreeContext {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };

  Block block_;
  std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
  bool in_frame_ = true;
};

bool is_gzip(std::string_view front) { return front.starts_with("\x1f\x8b\x08"); }

bool is_zstd(std::string_view front) {
  const bool skippable = front.size() == 4 && (front[0] & 0xF0) == 0x50 && front.ends_with("\x2a\x4d\x18");
  return front == "\x28\xb5\x2f\xfd" || skippable;
}

}  // namespace

std::unique_ptr<ByteSource> open_input(const Path& path) {
  auto file = std::make_unique<FileSource>(path);
  const std::string_view front = file->peek(4);
  if (is_gzip(front)) return std::make_unique<GzipSource>(std::move(file));
  if (is_zstd(front)) return std::make_unique<ZstdSource>(std::move(file));
  for (const auto& [ending, what] : {std::pair{".gz", "gzip"}, {".zst", "zstd"}}) {
    if (path.extension() == ending) {
      fail(ErrorCode::kBadFormat, "{}: does not begin as {} data does: truncated, or wrongly named", path.string(),
           what);
    }
  }
  return file;
}

std::string read_all(ByteSource& source) {
  std::string text;
  size_t size = 0;
  while (true) {
    text.resize(std::max<size_t>(kBlock, 2 * size));
    while (size < text.size()) {
      const int64_t got = source.read(std::span(text).subspan(size));
      if (got == 0) {
        text.resize(size);
        return text;
      }
      size += got;
    }
  }
}

LineReader::LineReader(std::unique_ptr<ByteSource> source, int64_t limit) : source_(std::move(source)), limit_(limit) {}
LineReader::~LineReader() = default;

bool LineReader::next(std::string& line) {
  size_t searched = begin_;
  while (true) {
    const size_t end = buffer_.find('\n', searched);
    const size_t length = (end == std::string::npos ? buffer_.size() : end) - begin_;
    if (static_cast<int64_t>(length) > limit_) {
      fail(ErrorCode::kBadFormat, "{}: line {} is longer than {} bytes", name(), line_number_ + 1, limit_);
    }
    if (end != std::string::npos) {
      line.assign(buffer_, begin_, length);
      begin_ = end + 1;
      ++line_number_;
      return true;
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    buffer_.resize(searched + kBlock);
    int64_t got = 0;
    try {
      got = source_->read(std::span(buffer_).subspan(searched));
    } catch (...) {
      buffer_.resize(searched);
      throw;
    }
    buffer_.resize(searched + got);
    if (got == 0) {
      if (buffer_.empty()) return false;
      line = std::move(buffer_);
      buffer_.clear();
      ++line_number_;
      return true;
    }
  }
}

}  // namespace loam
