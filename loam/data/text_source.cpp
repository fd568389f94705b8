#include "loam/data/text_source.h"

#include <algorithm>
#include <string_view>

#include "loam/base/error.h"
#include "loam/data/token_shard.h"

namespace loam {
namespace {

using namespace std::string_view_literals;

constexpr size_t kMaxPeek = 1 << 20;  // bytes of white space before a stream is taken for plain text
constexpr auto kByteOrderMark = "\xEF\xBB\xBF"sv;

}  // namespace

TextSource::TextSource(std::unique_ptr<ByteSource> source, std::function<void(int64_t)> on_bytes)
    : source_(std::move(source)), on_bytes_(std::move(on_bytes)) {}

void TextSource::begin_text() {
  while (front_.size() < kTokenShardMagic.size() && extend()) {
  }
  const std::string_view front = front_;
  if (front.starts_with(kTokenShardMagic)) {
    fail(ErrorCode::kBadFormat, "{}: a token shard, as `loam data tokenize` writes it, is no text; it is no input",
         name());
  }
  if (front.starts_with("\xFF\xFE"sv) || front.starts_with("\xFE\xFF"sv) || front.starts_with("\0\0\xFE\xFF"sv)) {
    fail(ErrorCode::kBadFormat, "{}: begins with a UTF-16 or UTF-32 byte order mark; convert the file to UTF-8",
         name());
  }
  if (front.starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
}

bool TextSource::is_json() {
  while (front_.size() < kByteOrderMark.size() && extend()) {
  }
  size_t at = front_.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  do {
    at = front_.find_first_not_of(" \t\r\n", at);
    if (at != std::string::npos) return front_[at] == '{';
    at = front_.size();
  } while (front_.size() < kMaxPeek && extend());
  return false;
}

int64_t TextSource::read(std::span<char> buffer) {
  if (begin_ == front_.size()) {
    const int64_t got = source_->read(buffer);
    on_bytes_(got);
    return got;
  }
  const size_t got = std::min(buffer.size(), front_.size() - begin_);
  std::copy_n(front_.data() + begin_, got, buffer.data());
  begin_ += got;
  return static_cast<int64_t>(got);
}

bool TextSource::extend() {
  char block[4096];
  const int64_t got = source_->read(block);
  front_.append(block, static_cast<size_t>(got));
  on_bytes_(got);
  return got > 0;
}

std::unique_ptr<TextSource> open_text(const Path& path) {
  auto source = std::make_unique<TextSource>(open_input(path), [](int64_t) {});
  source->begin_text();
  return source;
}

}  // namespace loam
