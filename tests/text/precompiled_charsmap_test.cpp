#include "loam/text/precompiled_charsmap.h"

#include <gtest/gtest.h>

#include "loam/base/base64.h"
#include "tests/harness/expect_error.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

// Its rules are in tests/fixtures/make_normalizer_fixture.py.
PrecompiledCharsmap charsmap() {
  return PrecompiledCharsmap(base64_decode(testing::fixture("normalizers.json").at("table").as_string()));
}

TEST(PrecompiledCharsmap, FindsTheShortestAndTheLongest) {
  const PrecompiledCharsmap map = charsmap();
  EXPECT_EQ(map.shortest("abcd")->length, 2u);
  EXPECT_EQ(map.shortest("abcd")->replacement, ";");
  EXPECT_EQ(map.longest("abcd")->length, 3u);
  EXPECT_EQ(map.longest("abcd")->replacement, "<");
  EXPECT_EQ(map.longest("abd")->length, 2u);
  EXPECT_EQ(map.longest("\u2468")->replacement, "(9)");
  EXPECT_EQ(map.longest("\u200b")->replacement, "");
  for (const char* text : {"", "b", "ba", "a", "e", "\u4f60", "\xe2\x91", "\x01"}) {
    EXPECT_FALSE(map.shortest(text)) << text;
    EXPECT_FALSE(map.longest(text)) << text;
  }
}

TEST(PrecompiledCharsmap, KnowsWhatItsStringsHold) {
  const PrecompiledCharsmap map = charsmap();
  EXPECT_TRUE(map.continues("a"));
  EXPECT_TRUE(map.continues("ab"));
  EXPECT_FALSE(map.continues("abc"));
  EXPECT_FALSE(map.continues(" "));
  EXPECT_TRUE(map.holds_inside("xc"));   // "abc"
  EXPECT_TRUE(map.holds_inside("b"));    // "ab"
  EXPECT_FALSE(map.holds_inside("\t"));  // only alone
  EXPECT_FALSE(map.holds_inside(" aAx"));
}

// Units that lead out of the array, in circles, and to no replacement.
TEST(PrecompiledCharsmap, FollowsNoUnitOutOfTheTable) {
  const auto table = [](std::vector<uint32_t> units, std::string_view replacements) {
    units.insert(units.begin(), static_cast<uint32_t>(units.size() * 4));
    return std::string(reinterpret_cast<const char*>(units.data()), units.size() * 4).append(replacements);
  };
  constexpr uint32_t kKey = 256, kFar = 512;
  const auto offset = [](uint32_t value) { return value << 10; };
  EXPECT_FALSE(PrecompiledCharsmap(table({0xFFFFFFFF}, "")).longest("abc"));
  EXPECT_FALSE(PrecompiledCharsmap(table({offset(0x1FFFFF) | kFar}, "")).longest("abc"));
  // Behind the byte 1 is the node 0 again: any number of it are a string, and a value past the replacements.
  const PrecompiledCharsmap circle(table({0, 1 | kKey | offset(1)}, "x"));
  EXPECT_EQ(circle.longest(std::string(1000, 1))->length, 256u);
  EXPECT_EQ(circle.longest("\x01")->replacement, "x");
  EXPECT_TRUE(circle.continues(std::string(1000, 1)));
  EXPECT_FALSE(circle.holds_inside(" "));
  EXPECT_TRUE(circle.holds_inside("\x01"));
  const PrecompiledCharsmap past(table({offset(2), 2, 0x80000002, 1 | kKey | offset(1)}, "x"));
  EXPECT_FALSE(past.longest("\x01"));
}

}  // namespace
}  // namespace loam
