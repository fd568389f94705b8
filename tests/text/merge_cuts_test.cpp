#include "loam/text/merge_cuts.h"

#include <gtest/gtest.h>

#include "tests/text/text_testing.h"

namespace loam {
namespace {

using testing::random_text;
using testing::slow_merge;
using testing::split_pieces;
using testing::train_on;
using Ids = std::vector<int32_t>;

// Characters of one to four bytes, whole and in parts, and bytes that no character has.
const std::vector<std::string>& characters() {
  static const std::vector<std::string> some = {"a",        "b",
                                                "\u00e9",   "\u044f",
                                                "\u4f60",   "\u597d",
                                                "\u4e2d",   "\u56fd",
                                                "\u6587",   "\U0001f60a",
                                                "\xe4",     "\xbd",
                                                "\xe4\xbd", "\x80\x80\x80\x80\x80",
                                                "\xf0\x9f", std::string(1, '\0'),
                                                "\xff"};
  return some;
}

TEST(MergeCuts, FallsBetweenCharactersThatNoMergeJoins) {
  const MergeCuts cuts({{"\u4f60", "\u597d"}, {"a", "b"}, {"\u4e2d\u56fd", "\u6587"}, {"b", "\xe6"}});
  const std::string text = "\u4f60\u597d\u4e2d\u56fd\u6587";
  std::vector<size_t> found;
  for (size_t at = 3; at < text.size(); at += 3) {
    if (cuts.is_cut(text, at)) found.push_back(at);
  }
  EXPECT_EQ(found, (std::vector<size_t>{6, 9}));  // the merge that makes "\u4e2d\u56fd" is not there
  EXPECT_FALSE(cuts.is_cut("ab", 1));
  EXPECT_TRUE(cuts.is_cut("ba", 1));
  EXPECT_FALSE(cuts.is_cut("b\u6587", 1));  // a merge with a part of the character
  EXPECT_TRUE(cuts.is_cut("b\u4f60", 1));
}

// The definition, for merges and texts of all kinds: at a cut no merge has its two parts on the two sides.
TEST(MergeCuts, NoMergeJoinsTheSidesOfACut) {
  int64_t places = 0, cut = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    std::vector<std::string> parts;
    for (uint64_t i = 0; i < 40; ++i)
      parts.push_back(random_text(characters(), 1 + static_cast<int>(i % 3), 99 * seed + i));
    std::vector<MergeCuts::Sides> merges;
    for (size_t i = 0; i + 1 < parts.size(); i += 2) merges.emplace_back(parts[i], parts[i + 1]);
    const MergeCuts cuts(merges);
    const std::string text = random_text(characters(), 60, seed + 1'000'000);
    for (size_t at = 1; at < text.size(); ++at) {
      const std::string_view before = std::string_view(text).substr(0, at), after = std::string_view(text).substr(at);
      const bool joined = std::any_of(merges.begin(), merges.end(), [&](const MergeCuts::Sides& merge) {
        return before.ends_with(merge.first) && after.starts_with(merge.second);
      });
      const bool is_cut = cuts.is_cut(text, at);
      ASSERT_FALSE(joined && is_cut) << seed << " " << at;
      places += !joined;
      cut += is_cut;
    }
  }
  EXPECT_GT(cut, places / 2);
}

// Long pieces of such characters, cut or not, have the ids of the definition; also where some tokens are taken whole,
// of which no merges make the last two.
TEST(MergeCuts, LongPiecesKeepTheirIds) {
  const std::vector<std::string> words = {"\u4f60\u597d", "\u4e2d\u56fd\u6587", "\u6587", "\u4e2d",  "\u0444\u044f",
                                          "ab",           "\U0001f60a",         "\u4f60", "a\u4f60", "\u56fd\u00e9"};
  BpeModel model = make_bpe_model(train_on({random_text(words, 3000, 1)}, 60), {}, Pretokenizer::gpt2());
  model.tokens.insert(model.tokens.end(), {"\u597d\u4f60", "\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d"});
  for (const bool whole : {false, true}) {
    model.ignore_merges = whole;
    const Tokenizer tokenizer(model);
    const auto ids_of = [&](const std::string& piece) {
      const auto token = std::find(model.tokens.begin(), model.tokens.end(), piece);
      if (whole && token != model.tokens.end()) return Ids{static_cast<int32_t>(token - model.tokens.begin())};
      Ids symbols;
      for (const char c : piece) symbols.push_back(static_cast<unsigned char>(c));
      return slow_merge(model, symbols);
    };
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const std::string text = random_text(words, 1 + static_cast<int>(seed), seed) + " \u597d\u4f60\n\u597d\u4f60, " +
                               random_text(characters(), 30, seed);
      Ids wanted;
      for (const std::string& piece : split_pieces(text)) {
        for (const int32_t id : ids_of(piece)) wanted.push_back(id);
      }
      ASSERT_EQ(tokenizer.encode(text), wanted) << whole << " " << seed;
    }
    EXPECT_EQ(tokenizer.encode("\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d").size() == 1, whole);
  }
}

}  // namespace
}  // namespace loam
