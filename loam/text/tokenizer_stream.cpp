#include "loam/text/tokenizer_stream.h"

#include <charconv>
#include <string>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/interrupt.h"

namespace loam {
namespace {

constexpr int64_t kReadBytes = 1 << 20;
constexpr size_t kTrainBytes = 1 << 24;  // read before pieces are counted

bool is_separator(char c) { return c == ' ' || (c >= 9 && c <= 13) || c == ',' || c == '[' || c == ']'; }

}  // namespace

StreamCounts encode_stream(const Tokenizer& tokenizer, ByteSource& source, const SpecialPolicy& policy,
                           const std::function<void(std::span<const int32_t>)>& sink) {
  StreamCounts counts;
  StreamEncoder encoder(tokenizer, policy);
  std::vector<char> buffer(kReadBytes);
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

StreamCounts decode_stream(const Tokenizer& tokenizer, ByteSource& source,
                           const std::function<void(std::string_view)>& sink) {
  StreamCounts counts;
  std::vector<char> buffer(kReadBytes);
  std::string number, text;
  const auto finish_number = [&] {
    if (number.empty()) return;
    int32_t id = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), id);
    if (error != std::errc() || end != number.data() + number.size()) {
      fail(ErrorCode::kBadFormat, "{}: \"{}\" is not a token id", source.name(), number);
    }
    number.clear();
    text += tokenizer.token_bytes(id);
    ++counts.tokens;
  };
  while (const int64_t count = source.read(buffer)) {
    check_interrupt();
    for (int64_t i = 0; i < count; ++i) {
      if (is_separator(buffer[i])) {
        finish_number();
      } else {
        if (number.size() >= 32) fail(ErrorCode::kBadFormat, "{}: \"{}...\" is not a token id", source.name(), number);
        number += buffer[i];
      }
    }
    counts.bytes += static_cast<int64_t>(text.size());
    sink(text);
    text.clear();
  }
  finish_number();
  counts.bytes += static_cast<int64_t>(text.size());
  sink(text);
  return counts;
}

int64_t add_stream(BpeTrainer& trainer, ByteSource& source) {
  std::vector<char> buffer(kReadBytes);
  std::string held;
  int64_t total = 0;
  size_t wait_until = kTrainBytes;
  while (const int64_t count = source.read(buffer)) {
    check_interrupt();
    total += count;
    held.append(buffer.data(), static_cast<size_t>(count));
    if (held.size() < wait_until) continue;
    held.erase(0, trainer.add_front(held));
    wait_until = std::max(kTrainBytes, 2 * held.size());
  }
  trainer.add_document(held);
  return total;
}

}  // namespace loam
