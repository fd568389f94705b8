// Tokenizers written as keys of GGUF files, read back.
#include <gtest/gtest.h>

#include "loam/text/tokenizer_files.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using testing::TempDir;
using Ids = std::vector<int32_t>;

Tokenizer read_again(const std::vector<GgufField>& fields) {
  const TempDir directory;
  GgufWriter(directory / "a.gguf", fields, {}).commit();
  return load_gguf_tokenizer(directory / "a.gguf");
}

const GgufField::Value& value_of(const std::vector<GgufField>& fields, const std::string& key) {
  for (const GgufField& field : fields) {
    if (field.key == "tokenizer.ggml." + key) return field.value;
  }
  fail(ErrorCode::kNotFound, "{}", key);
}

BpeModel byte_level(const std::string& pattern) {
  return make_bpe_model({{'a', 'b'}, {256, 'c'}, {' ', 'a'}}, {"<s>", "<|endoftext|>"}, parse_pretokenizer(pattern));
}

TEST(GgufTokenizerWriter, ByteLevelBpeIsReadBackTheSame) {
  const std::pair<const char*, const char*> patterns[] = {
      {"gpt2", "gpt-2"}, {"llama3", "dbrx"}, {"qwen2", "qwen2"}, {"o200k", "gpt-4o"}, {"starcoder", "starcoder"}};
  for (const auto& [pattern, pre] : patterns) {
    BpeModel model = byte_level(pattern);
    model.frame = begins_with(259);
    const Tokenizer tokenizer(model);
    const std::vector<GgufField> fields = gguf_tokenizer(tokenizer, 264, -1, {260});
    EXPECT_EQ(value_of(fields, "pre"), GgufField::Value(std::string(pre)));
    EXPECT_EQ(value_of(fields, "bos_token_id"), GgufField::Value(259u));
    EXPECT_EQ(value_of(fields, "eos_token_id"), GgufField::Value(260u));
    EXPECT_EQ(value_of(fields, "add_bos_token"), GgufField::Value(true));
    EXPECT_EQ(value_of(fields, "add_eos_token"), GgufField::Value(false));
    EXPECT_EQ(value_of(fields, "merges"), GgufField::Value(std::vector<std::string>{"a b", "ab c", "\u0120 a"}));
    const auto& tokens = std::get<std::vector<std::string>>(value_of(fields, "tokens"));
    ASSERT_EQ(tokens.size(), 264u);
    EXPECT_EQ(tokens[' '], "\u0120");
    EXPECT_EQ(tokens[259], "<s>");
    EXPECT_EQ(tokens[263], "[PAD263]");
    const auto& types = std::get<Ids>(value_of(fields, "token_type"));
    EXPECT_EQ((Ids{types.end() - 6, types.end()}), (Ids{1, 3, 3, 5, 5, 5}));
    EXPECT_EQ(read_again(fields).fingerprint(), tokenizer.fingerprint());
  }
  BpeModel whole = byte_level("llama3");
  whole.ignore_merges = true;
  EXPECT_EQ(value_of(gguf_tokenizer(Tokenizer(whole), 261, -1, {}), "pre"), GgufField::Value(std::string("llama-bpe")));
}

// What the template puts behind a text ends a reply, and so does what else the model states.
TEST(GgufTokenizerWriter, KeepsEveryTokenThatEndsAReply) {
  BpeModel model = byte_level("gpt2");
  model.frame.single = {{SequenceTemplate::Item::Kind::kFirst}, {SequenceTemplate::Item::Kind::kToken, 260}};
  model.frame.pair = {{SequenceTemplate::Item::Kind::kFirst}, {SequenceTemplate::Item::Kind::kSecond}};
  const std::vector<GgufField> fields = gguf_tokenizer(Tokenizer(model), 261, -1, {259, 260});
  EXPECT_EQ(value_of(fields, "add_eos_token"), GgufField::Value(true));
  EXPECT_EQ(value_of(fields, "eos_token_id"), GgufField::Value(260u));
  EXPECT_EQ(value_of(fields, "eot_token_id"), GgufField::Value(259u));
  for (const GgufField& field : fields) EXPECT_NE(field.key, "tokenizer.ggml.eom_token_id");
}

TEST(GgufTokenizerWriter, SentencePieceIsReadBackTheSame) {
  const Json fixture = testing::fixture("tokenizer_spm.json");
  const Tokenizer listed = parse_tokenizer_json(fixture.at("file").dump(), "fixture");
  const std::vector<GgufField> fields = gguf_tokenizer(listed, listed.vocab_size() + 2, -1, {2});
  EXPECT_EQ(value_of(fields, "model"), GgufField::Value(std::string("llama")));
  const Tokenizer again = read_again(fields);
  EXPECT_EQ(again.vocab_size(), listed.vocab_size());
  ASSERT_GT(fixture.at("cases").as_array().size(), 20u);
  for (const Json& item : fixture.at("cases").as_array()) {
    EXPECT_EQ(again.encode(item.as_array()[0].as_string(), SpecialPolicy::all()), testing::ids_of(item.as_array()[1]))
        << item.as_array()[0].dump();
  }
}

TEST(GgufTokenizerWriter, RefusesWhatLlamaCppDoesNotKnow) {
  const auto expect_refused = [](const BpeModel& model, const Ids& eos, const char* message) {
    EXPECT_LOAM_ERROR(gguf_tokenizer(Tokenizer(model), 300, -1, eos), ErrorCode::kInvalidArgument, message);
  };
  expect_refused(byte_level("cl100k"), {260}, "cuts text by");
  BpeModel model = byte_level("gpt2");
  model.normalizer = Normalizer({normal::Lowercase{}});
  expect_refused(model, {260}, "changes text by");
  model = byte_level("gpt2");
  model.space.prefix = SpaceRule::Prefix::kEach;
  expect_refused(model, {260}, "space in front");
  model = byte_level("gpt2");
  model.specials[0].always = model.specials[0].lstrip = true;
  expect_refused(model, {260}, "looks at what is beside it");
  expect_refused(make_bpe_model({}, {}, Pretokenizer()), {}, "states a token that ends a text");
  EXPECT_LOAM_ERROR(gguf_tokenizer(Tokenizer(byte_level("gpt2")), 200, -1, {}), ErrorCode::kInvalidArgument,
                    "ids up to 260, the embedding only 200 rows");
  WordModel words;
  words.tokens = {"<unk>", "a"};
  EXPECT_LOAM_ERROR(gguf_tokenizer(Tokenizer(words), 2, -1, {1}), ErrorCode::kInvalidArgument, "is no BPE");
}

}  // namespace
}  // namespace loam
