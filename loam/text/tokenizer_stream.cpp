#include "loam/text/tokenizer_stream.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <string>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/interrupt.h"

namespace loam {
namespace {

constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kMaxDigits = 32;  // leading zeros included

bool is_separator(char c) { return c == ' ' || (c >= 9 && c <= 13) || c == ',' || c == '[' || c == ']'; }

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
                           const std::function<void(std::span<const int32_t>)>& sink, int threads) {
  StreamCounts counts;
  const size_t read_bytes = kReadBytes * static_cast<size_t>(threads);
  StreamEncoder encoder(tokenizer, policy, threads > 1 ? read_bytes : kReadBytes / 16, threads);
  std::vector<char> buffer(read_bytes);
  std::vector<int32_t> ids;
  const auto flush = [&] {
    counts.tokens += static_cast<int64_t>(ids.size());
    if (!ids.empty()) sink(ids);
    ids.clear();
  };
  while (const int64_t count = source.read(buffer)) {
    check_interrupt();
    counts.bytes += count;
    encoder.push({buffer.data(), static_cast<size_t>(count)}, ids);
    flush();
  }
  encoder.finish(ids);
  flush();
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
