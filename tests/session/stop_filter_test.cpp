#include "loam/session/stop_filter.h"

#include <gtest/gtest.h>

#include "loam/base/error.h"

namespace loam {
namespace {

// The text that gets through when `text` arrives in pieces of `piece` bytes; no pushed part may hold more than the
// final text.
std::string through(const std::string& text, const std::vector<std::string>& stops, size_t piece) {
  StopFilter filter(stops);
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece) out += filter.push(text.substr(i, piece));
  return out + filter.finish();
}

// The definition: a byte at a time, until the text ends with a stop string; the longest such goes.
std::string expected(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t n = 1; n <= text.size(); ++n) {
    size_t longest = 0;
    for (const auto& stop : stops) {
      if (stop.size() <= n && text.compare(n - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, n - longest);
  }
  return text;
}

TEST(StopFilter, NothingOfAStopStringLeaksForAnyCut) {
  const std::vector<std::string> texts = {"ABCDEFGHIJKL",    "ABCDEFGHIXYZ", "aaaaaab", "DEFGHI", "",
                                          "xDEFGHIJDEFGHIJ", "aabaabaac"};
  const std::vector<std::vector<std::string>> stop_sets = {
      {"DEFGHIJ"}, {"aab", "b"}, {"aabaac"}, {"GHIJ", "EFGHIJK"}, {}};
  for (const auto& text : texts) {
    for (const auto& stops : stop_sets) {
      for (size_t piece = 1; piece <= 5; ++piece)
        EXPECT_EQ(through(text, stops, piece), expected(text, stops)) << text << " by " << piece;
    }
  }
}

TEST(StopFilter, HoldsBackOnlyWhatMayStillBecomeAStop) {
  StopFilter filter({"DEFGHIJ"});
  EXPECT_EQ(filter.push("ABCDEF"), "ABC");
  EXPECT_EQ(filter.push("G!"), "DEFG!");
  EXPECT_EQ(filter.push("DEFGHIJK"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, EmptyStopStringIsAnError) { EXPECT_THROW(StopFilter({"a", ""}), Error); }

}  // namespace
}  // namespace loam
