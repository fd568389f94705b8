// A stream of bytes whose front can be looked at before it is read.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "loam/base/file.h"

namespace loam {

class TextSource : public ByteSource {
 public:
  // `on_bytes` hears of every read of `source`.
  TextSource(std::unique_ptr<ByteSource> source, std::function<void(int64_t)> on_bytes);
  // Leaves out a UTF-8 byte order mark. Error{kBadFormat} for one of UTF-16 or UTF-32, and for a token shard. REQUIRES:
  // nothing has been read.
  void begin_text();
  // Whether the first byte that is not white space, behind a byte order mark, is "{". It stays in the stream.
  bool is_json();
  int64_t read(std::span<char> buffer) override;
  int64_t file_position() const override { return source_->file_position(); }
  const std::string& name() const override { return source_->name(); }

 private:
  bool extend();  // reads ahead; false at the end

  std::unique_ptr<ByteSource> source_;
  std::function<void(int64_t)> on_bytes_;
  std::string front_;  // read ahead; given out from begin_ on
  size_t begin_ = 0;
};

// A file of text from its beginning: begin_text() is done.
std::unique_ptr<TextSource> open_text(const Path& path);

}  // namespace loam
