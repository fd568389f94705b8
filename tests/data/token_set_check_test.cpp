#include "loam/data/token_set_check.h"

#include <gtest/gtest.h>

#include "loam/base/json.h"
#include "loam/data/tokenize.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

class TokenSetCheck : public ::testing::Test {
 protected:
  TokenSetCheck() {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += Json(Json::Object{{"text", std::to_string(i) + " then"}}).dump() + "\n";
    write_file_atomic(directory_ / "d.jsonl", lines);
    TokenizeOptions options;
    options.inputs = {directory_ / "d.jsonl"};
    options.val_fraction = 0.5;
    tokenize_documents(tokenizer_, options, data_);
  }
  void check(bool count_bytes = true) const {
    const TokenSet train(data_ / "train"), val(data_ / "val");
    check_token_sets(data_, train, &val, count_bytes);
  }
  // The index of a part with another value of one key; `check` is called while it stands.
  void expect_error(const std::string& part, const char* key, const Json& value, const std::string& message) const {
    const Path path = data_ / part / "index.json";
    const std::string before = read_file(path);
    Json index = Json::parse(before);
    index[key] = value;
    write_file_atomic(path, index.dump());
    EXPECT_LOAM_ERROR(check(), ErrorCode::kBadFormat, part + "/index.json: '" + message);
    write_file_atomic(path, before);
  }

  testing::TempDir directory_;
  const Path data_ = directory_ / "data";
  // 256 bytes, "th" = 256, "the" = 257, end of text = 258.
  const Tokenizer tokenizer_{make_bpe_model({{'t', 'h'}, {256, 'e'}}, {"<|endoftext|>"}, Pretokenizer::gpt2())};
};

TEST_F(TokenSetCheck, WhatBelongsTogetherPasses) {
  EXPECT_NO_THROW(check());
  std::filesystem::remove(data_ / "tokenizer.json");
  EXPECT_NO_THROW(check());
}

TEST_F(TokenSetCheck, ContradictionsAreNamed) {
  const int64_t bytes = TokenSet(data_ / "train").info().text_bytes;
  const int64_t ends = 13 * TokenSet(data_ / "train").info().documents;  // whether "<|endoftext|>" is text is not known
  expect_error("train", "text_bytes", bytes - 1, "text_bytes' is " + std::to_string(bytes - 1));
  expect_error("train", "text_bytes", bytes + ends + 1,
               "text_bytes' is " + std::to_string(bytes + ends + 1) +
                   ", but by the tokenizer.json of these data it is " + "between " + std::to_string(bytes) + " and " +
                   std::to_string(bytes + ends));
  expect_error("val", "text_bytes", 0, "text_bytes' is 0");
  expect_error("val", "end_of_text", 257, "vocab_size' and 'end_of_text' are 259 and 257");
  expect_error("val", "tokenizer", "0123", "tokenizer' is not that of train/");
  std::filesystem::remove_all(data_ / "val");
  std::filesystem::copy(data_ / "train", data_ / "val");
  for (const char* part : {"train", "val"}) {
    const Path path = data_ / part / "index.json";
    Json index = Json::parse(read_file(path));
    index["end_of_text"] = 257;
    write_file_atomic(path, index.dump());
  }
  EXPECT_LOAM_ERROR(check(), ErrorCode::kBadFormat,
                    "train/index.json: 'end_of_text' is 257, but by the tokenizer.json of these data it is 258");
}

TEST_F(TokenSetCheck, AnotherTokenizerIsNamed) {
  const Tokenizer other(make_bpe_model({{'t', 'h'}, {256, 'a'}}, {"<|endoftext|>"}, Pretokenizer::gpt2()));
  write_file_atomic(data_ / "tokenizer.json", tokenizer_json(other));
  EXPECT_LOAM_ERROR(check(false), ErrorCode::kBadFormat,
                    "train/index.json: 'tokenizer' is " + tokenizer_.fingerprint());
}

}  // namespace
}  // namespace loam
