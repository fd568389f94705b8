#include "loam/text/tokenizer_stream.h"

#include <gtest/gtest.h>

#include "tests/harness/expect_error.h"
#include "tests/harness/sanitizers.h"
#include "tests/harness/temp_dir.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using namespace std::string_literals;
using testing::hard_parts;
using testing::random_text;
using testing::TempDir;
using Ids = std::vector<int32_t>;

// 256 bytes, "th" = 256, "the" = 257, <|end|> = 258, no token with the id 259, the added token "xyz" = 260.
Tokenizer small_tokenizer() {
  BpeModel model = make_bpe_model({{'t', 'h'}, {256, 'e'}}, {"<|end|>"}, {});
  model.tokens.insert(model.tokens.end(), {"", "xyz"});
  model.specials.push_back({"xyz", 260, true});
  return Tokenizer(std::move(model));
}

class TokenizerStream : public ::testing::Test {
 protected:
  std::string decoded(const std::string& ids, IdFormat format = IdFormat::kText) {
    write_file_atomic(directory_ / "ids", ids);
    std::string text;
    counts_ = decode_stream(tokenizer_, *open_input(directory_ / "ids"), format,
                            [&](std::string_view part) { text += part; });
    return text;
  }

  TempDir directory_;
  Tokenizer tokenizer_ = small_tokenizer();
  StreamCounts counts_;
};

// Several blocks of several parts, and a piece that is longer than a block.
TEST_F(TokenizerStream, ThreadsGiveTheIdsOfOne) {
  const std::string text = random_text(hard_parts(), 400000, 3) +
                           std::string(testing::kSanitized ? 0 : 6'000'000, 't') +
                           random_text(hard_parts(), 1'500'000, 4);
  write_file_atomic(directory_ / "text", text);
  std::vector<Ids> found;
  for (const int threads : {1, 2}) {
    Ids& ids = found.emplace_back();
    const auto source = open_input(directory_ / "text");
    const StreamCounts counts = encode_stream(
        tokenizer_, *source, SpecialPolicy::all(),
        [&](std::span<const int32_t> part) { ids.insert(ids.end(), part.begin(), part.end()); }, threads);
    EXPECT_EQ(counts.bytes, static_cast<int64_t>(text.size()));
    EXPECT_EQ(counts.tokens, static_cast<int64_t>(ids.size()));
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], tokenizer_.encode(text, SpecialPolicy::all()));
}

// What a stream gave before it broke is encoded; by several threads also of less than a block, and of nothing.
TEST_F(TokenizerStream, WhatComesBeforeAFaultIsEncoded) {
  class Broken final : public ByteSource {
   public:
    explicit Broken(std::string_view text) : text_(text) {}
    int64_t read(std::span<char> buffer) override {
      if (text_.empty()) fail(ErrorCode::kIo, "broken");
      const size_t count = std::min({buffer.size(), text_.size(), size_t{100'000}});
      std::copy_n(text_.data(), count, buffer.data());
      text_.remove_prefix(count);
      return static_cast<int64_t>(count);
    }
    int64_t file_position() const override { return 0; }
    const std::string& name() const override { return name_; }

   private:
    std::string_view text_;
    std::string name_ = "broken";
  };
  const std::string long_text = random_text({"the ", "cat ", "ate\n"}, 1'500'000, 1);
  const std::vector<std::pair<int, size_t>> cases = {
      {1, long_text.size()}, {2, long_text.size()}, {2, 150'000}, {2, 0}};
  for (const auto& [threads, length] : cases) {
    const std::string text = long_text.substr(0, length);
    const Ids wanted = tokenizer_.encode(text);
    Broken source(text);
    Ids ids;
    const IdSink sink = [&](std::span<const int32_t> part) { ids.insert(ids.end(), part.begin(), part.end()); };
    EXPECT_LOAM_ERROR(encode_stream(tokenizer_, source, SpecialPolicy::none(), sink, threads), ErrorCode::kIo,
                      "broken");
    ASSERT_LE(ids.size(), wanted.size());
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), wanted.begin())) << threads << " " << length;
    EXPECT_GE(ids.size(), wanted.size() * 9 / 10) << threads << " " << length;
  }
}

TEST_F(TokenizerStream, EncodeAndDecodeWholeStreams) {
  const std::string text = random_text(hard_parts(), 300000, 3);
  write_file_atomic(directory_ / "text", text);
  for (const SpecialPolicy& policy : {SpecialPolicy::none(), SpecialPolicy::all()}) {
    Ids ids;
    const auto source = open_input(directory_ / "text");
    const StreamCounts counts = encode_stream(tokenizer_, *source, policy, [&](std::span<const int32_t> part) {
      ids.insert(ids.end(), part.begin(), part.end());
    });
    EXPECT_EQ(ids, tokenizer_.encode(text, policy));
    EXPECT_EQ(counts.bytes, static_cast<int64_t>(text.size()));
    EXPECT_EQ(counts.tokens, static_cast<int64_t>(ids.size()));
    std::string numbers;
    const std::vector<uint16_t> narrow(ids.begin(), ids.end());
    for (const int32_t id : ids) numbers += std::to_string(id) + " ";
    EXPECT_TRUE(decoded(numbers) == text);
    EXPECT_TRUE(decoded({reinterpret_cast<const char*>(narrow.data()), 2 * narrow.size()}, IdFormat::kU16) == text);
    EXPECT_TRUE(decoded({reinterpret_cast<const char*>(ids.data()), 4 * ids.size()}, IdFormat::kU32) == text);
    EXPECT_EQ(counts_.bytes, counts.bytes);
    EXPECT_EQ(counts_.tokens, counts.tokens);
  }
}

TEST_F(TokenizerStream, FormsOfIds) {
  EXPECT_EQ(decoded("[97, 98]\n[257]\r\n\t0258"), "abthe<|end|>");
  EXPECT_EQ(counts_.tokens, 4);
  EXPECT_EQ(decoded("a\0\1\1"s, IdFormat::kU16), "athe");
  EXPECT_EQ(decoded("a\0\0\0\1\1\0\0"s, IdFormat::kU32), "athe");
  for (const IdFormat format : {IdFormat::kText, IdFormat::kU16, IdFormat::kU32}) EXPECT_EQ(decoded("", format), "");
  EXPECT_EQ(decoded("\n [] , "), "");
}

TEST_F(TokenizerStream, WhatIsNoIdIsNamedWithItsPlace) {
  const auto refused = [&](const std::string& ids, const std::string& message, IdFormat format = IdFormat::kText) {
    EXPECT_LOAM_ERROR(decoded(ids, format), ErrorCode::kBadFormat, "/ids: byte " + message);
  };
  refused("12x", "0: \"12x\" is not a token id");
  refused("97, 1.5", "4: \"1.5\" is not a token id");
  refused("97 99999999999999", "3: \"99999999999999\" is not a token id");
  refused("97 " + std::string(1000, '1'), "3: \"" + std::string(32, '1') + "...\" is not a token id");
  refused("97 -1", "3: id -1 is not in the vocabulary of 261");
  refused("97 261", "3: id 261 is not in the vocabulary of 261");
  refused("97 259", "3: tokenizer: no token has the id 259");
  refused("a\0\5\1"s, "2: id 261 is not in the vocabulary of 261", IdFormat::kU16);
  refused("a\0b"s, "2: the file ends inside an id of 2 bytes", IdFormat::kU16);
  refused("a\0\0\0\xFF\xFF\xFF\xFF"s, "4: id 4294967295 is not in the vocabulary of 261", IdFormat::kU32);
  refused("a\0\0\0b\0\0"s, "4: the file ends inside an id of 4 bytes", IdFormat::kU32);
  // Past the first block that is read.
  std::string many;
  while (many.size() < 3'000'000) many += "97 ";
  refused(many + "b", std::to_string(many.size()) + ": \"b\"");
}

}  // namespace
}  // namespace loam
