#include "loam/text/unicode.h"

#include <gtest/gtest.h>

#include "tests/harness/shared.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

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
  EXPECT_EQ(CharProperties::of(0x4F60).category(), Category::kLo);
  EXPECT_EQ(CharProperties::of(0x301).category(), Category::kMn);
  EXPECT_EQ(CharProperties::of(0x10FFFD).category(), Category::kCo);
  EXPECT_EQ(CharProperties::of(0x378).category(), Category::kCn);
  EXPECT_TRUE(CharProperties::of(0x3007).han() && CharProperties::of(0x2E80).han() &&
              !CharProperties::of(0x30A2).han());
  EXPECT_TRUE(CharProperties::of(0x24B6).alphabetic() && !CharProperties::of(0x2460).alphabetic());
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
