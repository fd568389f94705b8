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

// The definition: everything before the earliest stop string.
std::string expected(const std::string& text, const std::vector<std::string>& stops) {
  size_t cut = text.size();
  for (const auto& stop : stops) cut = std::min(cut, text.find(stop));
  return text.substr(0, cut);
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
