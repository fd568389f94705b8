#include "loam/text/tokenizer_stream.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/interrupt.h"

namespace loam {
namespace {

constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kMaxDigits = 32;  // leading zeros included

bool is_separator(char c) { return c == ' ' || (c >= 9 && c <= 13) || c == ',' || c == '[' || c == ']'; }

// A part of a stream, with room in front for what is left of the one before.
class Block {
 public:
  std::string_view text() const { return {buffer_.data() + begin_, end_ - begin_}; }
  bool is_last() const { return is_last_; }

  // Reads `size` bytes; fewer at the end of the source, and then this is the last block; and fewer from a pipe that has
  // no more at hand.
  void read(ByteSource& source, size_t size) {
    begin_ = end_ = kRoom;
    buffer_.resize(std::max(buffer_.size(), kRoom + size));
    while (end_ < kRoom + size && !is_last_) {
      const auto count = static_cast<size_t>(source.read(std::span(buffer_).subspan(end_, kRoom + size - end_)));
      is_last_ = count == 0;
      end_ += count;
      if (count < kAtHand && end_ - begin_ >= size / 8) break;
    }
  }
  void put_in_front(std::string_view rest) {
    if (rest.size() > begin_) {
      const size_t more = rest.size() - begin_;
      buffer_.insert(buffer_.begin(), more, 0);
      begin_ += more;
      end_ += more;
    }
    begin_ -= rest.size();
    std::copy(rest.begin(), rest.end(), buffer_.begin() + static_cast<int64_t>(begin_));
  }

 private:
  static constexpr size_t kRoom = 4096, kAtHand = size_t{1} << 16;

  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool is_last_ = false;
};

// While the threads encode one block, the next is read. Returns how many bytes were read.
int64_t encode_blocks(StreamEncoder& encoder, ByteSource& source, size_t block_bytes, const IdSink& sink) {
  Block block, next;
  int64_t bytes = 0;
  for (size_t size = block_bytes / 8;; size = block_bytes) {  // the first is read while nothing is encoded
    check_interrupt();
    std::exception_ptr fault;  // of reading: what came before is handed out
    const size_t done = encoder.encode_front(block.text(), block.is_last(), sink, [&] {
      if (block.is_last()) return;
      try {
        next.read(source, size);
      } catch (...) {
        fault = std::current_exception();
      }
      bytes += static_cast<int64_t>(next.text().size());
    });
    if (block.is_last()) return bytes;
    const std::string_view rest = block.text().substr(done);
    next.put_in_front(rest);
    // Twice what could not be cut, so that the total work stays linear however long a piece gets.
    block_bytes = std::max(block_bytes, 2 * rest.size());
    std::swap(block, next);
    if (!fault) continue;
    encoder.encode_front(block.text(), false, sink, [] {});
    std::rethrow_exception(fault);
  }
}

// Ids as they stand in a stream, to bytes.
class IdReader {
 public:
  IdReader(const Tokenizer& tokenizer, const std::string& name) : tokenizer_(tokenizer), name_(name) {}

  void push(std::string_view bytes) { held_.append(bytes); }
  // Numbers in decimal; `final`: nothing follows that could belong to the last one.
  void take_text(bool final);
  // Numbers of T's bytes.
  template <class T>
  void take_raw(bool final);

  std::string text;  // of the ids taken
  int64_t tokens = 0;

 private:
  void take(int64_t id, size_t at) {
    if (id < 0 || id >= tokenizer_.vocab_size()) {
      fail(ErrorCode::kBadFormat, "{}: byte {}: id {} is not in the vocabulary of {}", name_, offset_ + at, id,
           tokenizer_.vocab_size());
    }
    try {
      text += tokenizer_.token_bytes(static_cast<int32_t>(id));
    } catch (const Error& error) {
      fail(ErrorCode::kBadFormat, "{}: byte {}: {}", name_, offset_ + at, error.what());
    }
    ++tokens;
  }
  void take_separator(char c, size_t at) {
    depth_ += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (depth_ < 0) fail(ErrorCode::kBadFormat, "{}: byte {}: this ] closes no [", name_, offset_ + at);
  }
  void drop(size_t count) {
    held_.erase(0, count);
    offset_ += count;
  }

  const Tokenizer& tokenizer_;
  const std::string& name_;
  std::string held_;   // read, not yet taken
  size_t offset_ = 0;  // of its first byte in the stream
  int64_t depth_ = 0;  // of open brackets
};

void IdReader::take_text(bool final) {
  size_t at = 0;
  while (true) {
    for (; at < held_.size() && is_separator(held_[at]); ++at) take_separator(held_[at], at);
    size_t end = at;
    while (end < held_.size() && !is_separator(held_[end])) ++end;
    const bool complete = final || end < held_.size();
    if (end - at <= kMaxDigits && (!complete || end == at)) break;
    int32_t id = 0;
    const char* last = held_.data() + end;
    const auto [parsed, error] = std::from_chars(held_.data() + at, last, id);
    if (end - at > kMaxDigits || error != std::errc() || parsed != last) {
      const bool longer = end - at > kMaxDigits;
      fail(ErrorCode::kBadFormat, "{}: byte {}: \"{}{}\" is not a token id", name_, offset_ + at,
           held_.substr(at, std::min(end - at, kMaxDigits)), longer ? "..." : "");
    }
    take(id, at);
    at = end;
  }
  drop(at);
  if (final && depth_ > 0)
    fail(ErrorCode::kBadFormat, "{}: byte {}: the file ends before the ] of a [", name_, offset_);
}

template <class T>
void IdReader::take_raw(bool final) {
  static_assert(std::endian::native == std::endian::little);
  size_t at = 0;
  for (; at + sizeof(T) <= held_.size(); at += sizeof(T)) {
    T id;
    std::memcpy(&id, held_.data() + at, sizeof(T));
    take(id, at);
  }
  drop(at);
  if (final && !held_.empty()) {
    fail(ErrorCode::kBadFormat, "{}: byte {}: the file ends inside an id of {} bytes", name_, offset_, sizeof(T));
  }
}

}  // namespace

StreamCounts encode_stream(const Tokenizer& tokenizer, ByteSource& source, const SpecialPolicy& policy,
                           const IdSink& sink, int threads) {
  StreamCounts counts;
  const IdSink counted = [&](std::span<const int32_t> ids) {
    counts.tokens += static_cast<int64_t>(ids.size());
    if (!ids.empty()) sink(ids);
  };
  StreamEncoder encoder(tokenizer, policy, kReadBytes / 16, threads);
  if (threads > 1) {
    counts.bytes = encode_blocks(encoder, source, kReadBytes * static_cast<size_t>(threads), counted);
    return counts;
  }
  std::vector<char> buffer(kReadBytes);
  std::vector<int32_t> ids;
  while (const int64_t count = source.read(buffer)) {
    check_interrupt();
    counts.bytes += count;
    encoder.push({buffer.data(), static_cast<size_t>(count)}, ids);
    counted(ids);
    ids.clear();
  }
  encoder.finish(ids);
  counted(ids);
  return counts;
}

StreamCounts decode_stream(const Tokenizer& tokenizer, ByteSource& source, IdFormat format,
                           const std::function<void(std::string_view)>& sink) {
  IdReader reader(tokenizer, source.name());
  StreamCounts counts;
  std::vector<char> buffer(kReadBytes);
  for (bool final = false; !final;) {
    check_interrupt();
    const auto count = static_cast<size_t>(source.read(buffer));
    final = count == 0;
    reader.push({buffer.data(), count});
    switch (format) {
      case IdFormat::kText:
        reader.take_text(final);
        break;
      case IdFormat::kU16:
        reader.take_raw<uint16_t>(final);
        break;
      case IdFormat::kU32:
        reader.take_raw<uint32_t>(final);
        break;
    }
    counts.bytes += static_cast<int64_t>(reader.text.size());
    if (!reader.text.empty()) sink(reader.text);
    reader.text.clear();
  }
  counts.tokens = reader.tokens;
  return counts;
}

}  // namespace loam
