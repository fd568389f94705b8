// Byte-level vocabularies that have no token for some byte.
#include <gtest/gtest.h>

#include "loam/text/tokenizer_files.h"
#include "tests/harness/expect_error.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using testing::hard_parts;
using testing::model_of;
using testing::random_text;
using testing::train_on;
using Ids = std::vector<int32_t>;

// As the vocabulary of GPT-NeoX and OLMo, which has no tokens for bytes that are in no UTF-8.
TEST(Tokenizer, BytesWithoutTokensBecomeReplacementCharacters) {
  const auto is_never = [](char c) { return c == '\xc0' || c == '\xc1' || static_cast<unsigned char>(c) >= 0xF5; };
  std::vector<std::string> parts = hard_parts();
  std::erase_if(parts, [&](const std::string& part) { return std::any_of(part.begin(), part.end(), is_never); });
  parts.insert(parts.end(), {"\uFFFD", "\uFFFD\uFFFD", "\u4f60"});
  BpeModel model = make_bpe_model(train_on({random_text(parts, 3000, 1)}, 300), {"<|end|>"}, Pretokenizer::gpt2());
  const Tokenizer whole(model);
  EXPECT_TRUE(whole.lossless());
  for (size_t byte = 0; byte < 256; ++byte) {
    if (is_never(static_cast<char>(byte))) model.tokens[byte].clear();
  }
  parts.insert(parts.end(), {"\xff", "\xf5", "\xc0", "\xc1"});
  const Tokenizer tokenizer(model);
  EXPECT_FALSE(tokenizer.lossless());
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::string text = random_text(parts, static_cast<int>(seed % 60), seed);
    std::string replaced;
    for (const char c : text) replaced += is_never(c) ? "\uFFFD" : std::string(1, c);
    const Ids ids = tokenizer.encode(text);
    ASSERT_EQ(ids, whole.encode(replaced)) << seed;
    EXPECT_EQ(tokenizer.decode(ids), replaced);
    const Encoding encoding = tokenizer.encode_with_ranges(text);
    EXPECT_EQ(encoding.ids, ids);
    size_t at = 0;
    for (const TextRange& range : encoding.ranges) {
      EXPECT_EQ(range.begin, at);
      at = range.end;
    }
    EXPECT_EQ(at, text.size());
  }
}

// A piece is looked up as Hugging Face's library sees it: with U+FFFD, and with what is then left out.
TEST(Tokenizer, PiecesThatLackBytesAreLookedUpWhole) {
  BpeModel model = model_of({});
  model.ignore_merges = true;
  model.tokens[3].clear();
  model.tokens[0xFF].clear();
  model.tokens.insert(model.tokens.end(), {"!?", "!\uFFFD"});  // no merges make them
  const Tokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.encode("!?"), Ids{256});
  EXPECT_EQ(tokenizer.encode("\3!?"), (Ids{'!', '?'}));
  EXPECT_EQ(tokenizer.encode_with_ranges("\3!?").ids, (Ids{'!', '?'}));
  EXPECT_EQ(tokenizer.encode("!\xff"), Ids{257});
  EXPECT_EQ(tokenizer.encode_with_ranges("!\xff").ids, Ids{257});
}

// As Hugging Face's library does with characters that its BPE has no token for (Falcon: control characters).
TEST(Tokenizer, OtherBytesWithoutTokensAreLeftOut) {
  BpeModel model = model_of({{"!", "?"}});
  model.tokens[3].clear();
  const Tokenizer tokenizer(model);
  EXPECT_FALSE(tokenizer.lossless());
  EXPECT_EQ(tokenizer.encode("!\3?\3\3!\3"), (Ids{256, '!'}));  // one piece
  EXPECT_EQ(tokenizer.encode("\3"), Ids{});
  EXPECT_EQ(tokenizer.encode("\xE4\3\xBD"), (Ids{0xE4, 0xBD}));
  const Encoding encoding = tokenizer.encode_with_ranges("\3!?\3\3?");
  EXPECT_EQ(encoding.ids, (Ids{256, '?'}));
  EXPECT_EQ(encoding.ranges, (std::vector<TextRange>{{0, 5}, {5, 6}}));
  model.tokens['~'].clear();
  EXPECT_LOAM_ERROR(Tokenizer(model), ErrorCode::kBadFormat, "no token for the byte 0x7E");
}

// Where another token stands for what has none, leaving it out would be wrong.
TEST(TokenizerFiles, AnUnknownTokenOfBytesIsRefused) {
  Json file = Json::parse(tokenizer_json(Tokenizer(model_of({}))));
  std::erase_if(file["model"]["vocab"].as_object(), [](auto& v) { return v.first == "\u0101"; });  // the byte 0x01
  EXPECT_EQ(parse_tokenizer_json(file.dump(), "t").encode("a\1b"), (Ids{'a', 'b'}));
  for (const auto& [key, value] : Json::Object{{"unk_token", "a"}, {"byte_fallback", true}}) {
    Json changed = file;
    changed["model"][key] = value;
    EXPECT_LOAM_ERROR(parse_tokenizer_json(changed.dump(), "t"), ErrorCode::kBadFormat,
                      key + " with bytes that have no token");
  }
}

}  // namespace
}  // namespace loam
