#include "loam/text/utf8.h"

#include <gtest/gtest.h>

#include "loam/text/unicode.h"
#include "tests/harness/shared.h"
#include "tests/text/text_testing.h"

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

TEST(Unicode, ClassesOfKnownCharacters) {
  for (const uint32_t c : {0x41u, 0x7Au, 0xAAu, 0xE9u, 0x2B0u, 0x4F60u, 0xAC00u, 0x10400u, 0x323AFu}) {
    EXPECT_EQ(char_class(c), CharClass::kLetter) << std::hex << c;
  }
  for (const uint32_t c : {0x30u, 0xB2u, 0xBDu, 0x664u, 0x2167u, 0x3007u, 0x1D7D8u, 0x1FBF9u}) {
    EXPECT_EQ(char_class(c), CharClass::kNumber) << std::hex << c;
  }
  for (const uint32_t c :
       {0x9u, 0xDu, 0x20u, 0x85u, 0xA0u, 0x1680u, 0x2000u, 0x200Au, 0x2028u, 0x2029u, 0x202Fu, 0x205Fu, 0x3000u}) {
    EXPECT_EQ(char_class(c), CharClass::kSpace) << std::hex << c;
  }
  for (const uint32_t c :
       {0x0u, 0x1Cu, 0x5Fu, 0x180Eu, 0x200Bu, 0x300u, 0xFEFFu, 0xD800u, 0xFFFDu, 0x1F60Au, 0x110000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(char_class(c), CharClass::kOther) << std::hex << c;
  }
}

// All of UnicodeData.txt, read here in the plainest way.
TEST(Unicode, TablesAgreeWithTheUnicodeDatabase) {
  const Path path = "/usr/share/unicode/UnicodeData.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there (package unicode-data)";
  std::vector<char> category(0x110000, 'C');
  LineReader lines(open_input(path));
  uint32_t first = 0;
  for (std::string line; lines.next(line);) {
    const uint32_t code = static_cast<uint32_t>(std::stoul(line, nullptr, 16));
    const size_t name = line.find(';') + 1, kind = line.find(';', name) + 1;
    const std::string_view title = std::string_view(line).substr(name, kind - 1 - name);
    if (title.ends_with("First>")) first = code;
    for (uint32_t c = title.ends_with("Last>") ? first : code; c <= code; ++c) category[c] = line[kind];
  }
  int64_t letters = 0;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    ASSERT_EQ(char_class(c) == CharClass::kLetter, category[c] == 'L') << std::hex << c;
    ASSERT_EQ(char_class(c) == CharClass::kNumber, category[c] == 'N') << std::hex << c;
    letters += category[c] == 'L';
  }
  EXPECT_GT(letters, 130000);
}

}  // namespace
}  // namespace loam
