#include "loam/base/utf8.h"

#include <gtest/gtest.h>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "tests/harness/shared.h"

namespace loam {
namespace {

const std::string kFffd = "\xEF\xBF\xBD";

TEST(Utf8, ReplacesMaximalSubparts) {
  // Unicode 15.0, section 3.9, table 3-8.
  const std::string text = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
  EXPECT_EQ(replace_invalid_utf8(text), "a" + kFffd + kFffd + kFffd + "b" + kFffd + "c" + kFffd + kFffd + "d");
}

TEST(Utf8, SurrogatesOverlongFormsAndStrayBytesAreInvalid) {
  // As Python's bytes.decode(errors="replace") counts them.
  EXPECT_EQ(replace_invalid_utf8("ok\xED\xA0\x80"
                                 "bad"),
            "ok" + kFffd + kFffd + kFffd + "bad");
  EXPECT_EQ(replace_invalid_utf8("\xFF\xFE"), kFffd + kFffd);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), kFffd + kFffd);
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\xAF"), kFffd + kFffd + kFffd);
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), kFffd + kFffd + kFffd + kFffd);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), kFffd);
}

// What Python's errors="replace" makes of the edges of every range (make_utf8_fixture.py): overlong forms, surrogates,
// truncated sequences, values past U+10FFFF. One decoder serves text, JSON and documents.
TEST(Utf8, ReplacesAsPythonDoes) {
  const auto unhex = [](std::string_view digits) {
    std::string bytes;
    for (size_t i = 0; i + 1 < digits.size(); i += 2) {
      bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
    }
    return bytes;
  };
  LineReader lines(open_input(testing::source_path("tests/fixtures/utf8_replace.txt")));
  int count = 0;
  for (std::string line; lines.next(line); ++count) {
    const size_t space = line.find(' ');
    const std::string bytes = unhex(std::string_view(line).substr(0, space)), wanted = unhex(line.substr(space + 1));
    EXPECT_EQ(replace_invalid_utf8(bytes), wanted) << line;
    EXPECT_EQ(Json::parse("\"" + bytes + "\"").as_string(), wanted) << line;
    EXPECT_EQ(Json::parse(Json(bytes).dump()).as_string(), wanted) << line;
  }
  EXPECT_GT(count, 500);
}

TEST(Utf8, EveryCodePointComesBack) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char back = decode_utf8(text, 0);
    ASSERT_TRUE(back.valid) << c;
    ASSERT_EQ(back.code_point, c);
    ASSERT_EQ(static_cast<size_t>(back.length), text.size());
    ASSERT_EQ(text.size(), c < 0x80 ? 1u : c < 0x800 ? 2u : c < 0x10000 ? 3u : 4u);
  }
}

TEST(Utf8, IncompleteSuffix) {
  EXPECT_EQ(incomplete_utf8_suffix(""), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("a"), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("a\xC3"), 1u);
  EXPECT_EQ(incomplete_utf8_suffix("a\xE4\xBD"), 2u);
  EXPECT_EQ(incomplete_utf8_suffix("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_utf8_suffix("a\xF0\x9F\x98\x8A"), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("\xED\xA0"), 0u);      // never a character
  EXPECT_EQ(incomplete_utf8_suffix("\x80\x80\x80"), 0u);  // no lead
  EXPECT_EQ(incomplete_utf8_suffix("\xFF"), 0u);
}

TEST(Utf8, PrintableEscapesWhatCommandsATerminal) {
  EXPECT_EQ(printable("na\xC3\xAFve \xF0\x9F\xA6\x99"), "na\xC3\xAFve \xF0\x9F\xA6\x99");
  EXPECT_EQ(printable("a\x1B[31m\n\x7F"), "a\\x1b[31m\\x0a\\x7f");
  EXPECT_EQ(printable("a\nb\tc", true), "a\nb\\x09c");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m");  // CSI in one character
  EXPECT_EQ(printable("\xFF\xC3"), "\\xff\\xc3");
  EXPECT_EQ(printable("ab\xC3\xAF", false, 3), "ab...");  // not inside a character
  EXPECT_EQ(printable("ab\xC3\xAF", false, 4), "ab\xC3\xAF");
}

}  // namespace
}  // namespace loam
