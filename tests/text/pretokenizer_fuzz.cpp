// Any bytes as a text under a named pre-tokenizer: each scanner finds what PCRE2 finds for its regex, and a stream cut
// anywhere has the pieces of the whole. With a first byte past the names, the bytes are a regex: refused, or run.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/utf8.h"
#include "loam/text/pretokenizer.h"
#include "loam/text/unicode.h"
#include "tests/text/made_valid.h"

namespace {

using namespace loam;
using Ends = std::vector<std::pair<size_t, size_t>>;

Ends matches(const Matcher& matcher, const std::string& text) {
  Ends found;
  ScanMemo memo;
  size_t from = 0;
  for (Piece match; from <= text.size() && matcher.find(text, from, memo, match);) {
    found.emplace_back(match.begin, match.end());
    from = match.length > 0 ? match.end() : match.begin + 1;
    while (match.length == 0 && from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
  return found;
}

Ends filled(const Matcher& matcher, const std::string& text) {
  Ends found;
  std::array<Piece, 64> some;
  size_t from = 0;
  while (const size_t count = matcher.fill(text, from, text.size(), some)) {
    for (size_t i = 0; i < count; ++i) found.emplace_back(some[i].begin, some[i].end());
    from = some[count - 1].end();
  }
  return found;
}

// Whether PCRE2 holds a character of `text` for unassigned that loam knows: its tables are of Unicode 14.0 or later, as
// the library was built, loam's of 15.0.
bool newer_than_pcre2(const std::string& text) {
  static const auto unassigned = regex_matcher("\\p{Cn}");
  for (const auto& [begin, end] : matches(*unassigned, text)) {
    if (CharProperties::of(decode_utf8(text, begin).code_point).category() != Category::kCn) return true;
  }
  return false;
}

void append_pieces(const Pretokenizer& pretokenizer, const std::string& text, size_t limit, size_t base, Ends& out) {
  PieceCursor cursor(pretokenizer, text, limit);
  for (std::array<Piece, 3> some; const size_t count = cursor.next(some);) {
    for (size_t i = 0; i < count; ++i) out.emplace_back(base + some[i].begin, base + some[i].end());
  }
}

void check_stream(const Pretokenizer& pretokenizer, const std::string& text) {
  Ends whole, streamed;
  append_pieces(pretokenizer, text, text.size(), 0, whole);
  std::string held;
  size_t base = 0;
  for (size_t given = 0; given < text.size();) {
    const size_t count = std::min<size_t>(1 + given % 7, text.size() - given);
    held += text.substr(given, count);
    given += count;
    const size_t stable = given == text.size() ? held.size() : pretokenizer.stable_prefix(held);
    append_pieces(pretokenizer, held, stable, base, streamed);
    held.erase(0, stable);
    base += stable;
  }
  if (streamed != whole) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::string> names = pretokenizer_names();
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] >= names.size()) {
    try {
      const Pretokenizer pretokenizer({Split{text}});
      Ends pieces;
      append_pieces(pretokenizer, "The cat's\n\n 12 \xe4\xbd\xa0 \xff aaaa", std::string::npos, 0, pieces);
    } catch (const Error&) {
    }
    return 0;
  }
  const Pretokenizer pretokenizer = parse_pretokenizer(names[data[0]]);
  const std::string valid = loam::testing::made_valid(text);
  for (const Split& split : pretokenizer.splits()) {
    const auto scanner = make_matcher(split.regex);
    if (scanner->needs_utf8() || newer_than_pcre2(valid)) continue;
    const Ends expected = matches(*regex_matcher(split.regex), valid);
    if (matches(*scanner, text) != expected || (scanner->covers() && filled(*scanner, text) != expected)) std::abort();
  }
  check_stream(pretokenizer, text);
  return 0;
}
