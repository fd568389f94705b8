#include "loam/text/pretokenizer.h"

#include <gtest/gtest.h>

#include "tests/harness/expect_error.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using testing::hard_parts;
using testing::random_text;
using testing::split_pieces;
using Pieces = std::vector<std::string>;

TEST(Pretokenizer, WhiteSpaceGivesItsLastCharacterToTheNextPiece) {
  EXPECT_EQ(split_pieces("a  b"), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(split_pieces("\n\nx"), (Pieces{"\n", "\n", "x"}));
  EXPECT_EQ(split_pieces("x\n\n"), (Pieces{"x", "\n\n"}));
}

TEST(Pretokenizer, EqualsTheRegexPackageOfPython) {
  const Json cases = testing::fixture("tokenizer_pieces.json");
  ASSERT_GT(cases.as_array().size(), 50u);
  for (const Json& item : cases.as_array()) {
    Pieces wanted;
    for (const Json& piece : item.as_array()[1].as_array()) wanted.push_back(piece.as_string());
    EXPECT_EQ(split_pieces(item.as_array()[0].as_string()), wanted) << item.as_array()[0].dump();
  }
}

TEST(Pretokenizer, EveryByteIsInOnePieceAndBrokenUtf8IsOfNoClass) {
  EXPECT_EQ(split_pieces("ab\xED\xA0\x80 cd"), (Pieces{"ab", "\xED\xA0\x80", " cd"}));
  EXPECT_EQ(split_pieces(" \xFF\xFE!1"), (Pieces{" \xFF\xFE!", "1"}));
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::string text = testing::random_bytes(300, seed);
    std::string joined;
    for (const std::string& piece : split_pieces(text)) joined += piece;
    EXPECT_EQ(joined, text);
  }
}

TEST(Pretokenizer, StablePrefixKeepsItsPiecesUnderAnyContinuation) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string front = random_text(hard_parts(), 1 + static_cast<int>(seed % 7), seed);
    const size_t stable = stable_prefix(Pretokenizer::kGpt2, front);
    ASSERT_LE(stable, front.size());
    const auto pieces_before = [&](const std::string& text) {
      Pieces pieces;
      size_t position = 0;
      while (position < stable) {
        const size_t length = next_piece(Pretokenizer::kGpt2, text, position);
        pieces.push_back(text.substr(position, length));
        position += length;
      }
      EXPECT_EQ(position, stable);
      return pieces;
    };
    const Pieces wanted = pieces_before(front);
    for (uint64_t k = 0; k < 8; ++k) {
      ASSERT_EQ(pieces_before(front + random_text(hard_parts(), 3, seed * 8 + k + 100000)), wanted) << front;
    }
  }
}

TEST(Pretokenizer, StablePrefixLeavesOnlyTheLastPiecesOpen) {
  EXPECT_EQ(stable_prefix(Pretokenizer::kGpt2, "the cat sat"), 7u);
  EXPECT_EQ(stable_prefix(Pretokenizer::kGpt2, "the cat'r"), 7u);  // may become 're
  EXPECT_EQ(stable_prefix(Pretokenizer::kGpt2, "one"), 0u);
  EXPECT_EQ(stable_prefix(Pretokenizer::kGpt2, ""), 0u);
  EXPECT_EQ(stable_prefix(Pretokenizer::kGpt2, "\xE4\xBD"), 0u);
}

TEST(Pretokenizer, IndependentCutsKeepAllPieces) {
  int cuts = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::string text = random_text(hard_parts(), 20, seed);
    for (size_t i = 1; i < text.size(); ++i) {
      if (!is_independent_cut(text, i)) continue;
      Pieces parts = split_pieces(text.substr(0, i));
      for (const std::string& piece : split_pieces(text.substr(i))) parts.push_back(piece);
      ASSERT_EQ(parts, split_pieces(text));
      ++cuts;
    }
  }
  EXPECT_GT(cuts, 500);
}

TEST(Pretokenizer, UnknownNameIsRefused) {
  EXPECT_EQ(parse_pretokenizer("gpt2"), Pretokenizer::kGpt2);
  EXPECT_LOAM_ERROR(parse_pretokenizer("gpt-5"), ErrorCode::kInvalidArgument, "gpt2");
}

}  // namespace
}  // namespace loam
