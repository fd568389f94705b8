#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "loam/base/utf8.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using Ids = std::vector<int32_t>;

// Control tokens, bytes, then the given pieces by falling score.
SpmModel model_of(const std::vector<std::pair<std::string, float>>& pieces) {
  SpmModel model;
  model.tokens = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) model.tokens.push_back(fmt::format("<0x{:02X}>", byte));
  model.scores.resize(model.tokens.size(), 0.0f);
  for (const auto& [text, score] : pieces) {
    model.tokens.push_back(text);
    model.scores.push_back(score);
  }
  return model;
}

SpmModel fixture_model(const Json& fixture) {
  std::vector<std::pair<std::string, float>> pieces;
  for (const Json& token : fixture.at("tokens").as_array()) {
    pieces.emplace_back(token.as_array()[0].as_string(), static_cast<float>(token.as_array()[1].as_double()));
  }
  pieces.erase(pieces.begin(), pieces.begin() + 3);
  return model_of(pieces);
}

// As llama2.c does it: characters or their bytes, then the best score of all adjacent pairs, looked up as text, again
// and again.
Ids slow_encode(const SpmModel& model, const std::string& text) {
  const auto find = [&](const std::string& token) {
    for (size_t id = 259; id < model.tokens.size(); ++id) {
      if (model.tokens[id] == token) return static_cast<int32_t>(id);
    }
    return int32_t{-1};
  };
  const bool prefixed = model.space.prefix != SpaceRule::Prefix::kNever && !text.empty();
  const std::string all = (prefixed ? " " : "") + text;
  Ids ids;
  for (size_t i = 0; i < all.size();) {
    const Utf8Char c = decode_utf8(all, i);
    const int32_t id = find(all.substr(i, c.length));
    if (id >= 0) {
      ids.push_back(id);
    } else {
      for (int k = 0; k < c.length; ++k) ids.push_back(3 + static_cast<unsigned char>(all[i + k]));
    }
    i += c.length;
  }
  while (true) {
    float best = -INFINITY;
    size_t where = 0;
    int32_t made = -1;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      if (ids[i] < 259 || ids[i + 1] < 259) continue;
      const int32_t id = find(model.tokens[ids[i]] + model.tokens[ids[i + 1]]);
      if (id >= 0 && model.scores[id] > best) {
        best = model.scores[id];
        where = i;
        made = id;
      }
    }
    if (made < 0) return ids;
    ids[where] = made;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(SentencePiece, StoriesPrompt) {
  const Path golden_path = testing::shared_path("data/tinylm/golden_one.json"),
             path = testing::shared_path("data/tinylm/tok512.bin");
  LOAM_NEED_SHARED(golden_path);
  const Tokenizer tokenizer = load_llama2c_tokenizer(path, 512);
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.end_of_text_id(), 2);
  EXPECT_EQ(tokenizer.token_bytes(1), "<s>");
  const Json golden = Json::parse(read_file(golden_path));
  ASSERT_FALSE(golden.at("cases").as_array().empty());
  for (const Json& item : golden.at("cases").as_array()) {
    Ids ids = tokenizer.encode(item.at("prompt").as_string());
    ids.insert(ids.begin(), tokenizer.bos_id());
    EXPECT_EQ(ids, testing::ids_of(item.at("prompt_ids")));
  }
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::string text = testing::random_text(
        {"Once", " upon", " a", " time", ", ", "there", " was", "\n", "\u00e9", "  ", "\xff", "Lily"}, 30, seed);
    ASSERT_EQ(tokenizer.encode(text), slow_encode(*tokenizer.spm(), text)) << text;
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  EXPECT_LOAM_ERROR(load_llama2c_tokenizer(path, 511), ErrorCode::kBadFormat, "more than 511");
  EXPECT_LOAM_ERROR(load_llama2c_tokenizer(path, 513), ErrorCode::kBadFormat, "missing");
}

TEST(SentencePiece, EqualsHuggingFaceTokenizers) {
  const Json fixture = testing::fixture("tokenizer_spm.json");
  const Tokenizer by_scores(fixture_model(fixture));
  const Tokenizer by_file = parse_tokenizer_json(fixture.at("file").dump(), "fixture");
  const Tokenizer again = parse_tokenizer_json(tokenizer_json(by_scores), "again");
  EXPECT_EQ(by_scores.fingerprint(), by_file.fingerprint());
  EXPECT_EQ(by_scores.fingerprint(), again.fingerprint());
  EXPECT_EQ(by_file.bos_id(), 1);
  for (const Json& item : fixture.at("cases").as_array()) {
    const std::string& text = item.as_array()[0].as_string();
    const Ids wanted = testing::ids_of(item.as_array()[1]);
    EXPECT_EQ(by_scores.encode(text, SpecialPolicy::all()), wanted) << item.as_array()[0].dump();
    EXPECT_EQ(by_file.encode(text, SpecialPolicy::all()), wanted) << item.as_array()[0].dump();
  }
}

// What loam writes holds the same model as what `tokenizers` wrote, in the same form.
TEST(SentencePiece, WritesTheFormThatHuggingFaceWrites) {
  const Json fixture = testing::fixture("tokenizer_spm.json");
  const Json theirs = fixture.at("file"), ours = Json::parse(tokenizer_json(Tokenizer(fixture_model(fixture))));
  for (const char* key : {"added_tokens", "normalizer", "pre_tokenizer", "decoder", "post_processor"})
    EXPECT_EQ(ours.at(key), theirs.at(key)) << key;
  EXPECT_EQ(ours.at("model").at("vocab"), theirs.at("model").at("vocab"));
  const Json::Array& a = ours.at("model").at("merges").as_array();
  const Json::Array& b = theirs.at("model").at("merges").as_array();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].as_string(), b[i].as_array()[0].as_string() + " " + b[i].as_array()[1].as_string());
  }
}

TEST(SentencePiece, EqualsTheSlowReference) {
  // Equal scores, scores that fall and rise, a token of spaces, several ways to the same token.
  const std::vector<std::pair<std::string, float>> pieces = {{"a", -20},
                                                             {"b", -21},
                                                             {" ", -22},
                                                             {"\u00e9", -23},
                                                             {"aa", -1},
                                                             {"ab", -1},
                                                             {"ba", -3},
                                                             {"aab", -0.5f},
                                                             {" a", -2},
                                                             {"  ", -4},
                                                             {"    ", -5},
                                                             {" ab", -6},
                                                             {"bb", -7},
                                                             {"abb", -0.25f},
                                                             {"\u00e9"
                                                              "a",
                                                              -8},
                                                             {"aaaa", -9}};
  for (const bool prefix : {true, false}) {
    SpmModel model = model_of(pieces);
    if (!prefix) model.space.prefix = SpaceRule::Prefix::kNever;
    model.decode.drop_first_space = prefix;
    const Tokenizer tokenizer(model);
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const std::string text =
          testing::random_text({"a", "b", " ", "\u00e9", "z", "\xc3", "\u4f60"}, static_cast<int>(seed % 90), seed);
      ASSERT_EQ(tokenizer.encode(text), slow_encode(model, text)) << seed << " " << text;
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
      StreamEncoder encoder(tokenizer, SpecialPolicy::none(), 1);
      Ids ids;
      for (const char c : text) encoder.push({&c, 1}, ids);
      encoder.finish(ids);
      ASSERT_EQ(ids, tokenizer.encode(text));
    }
    const std::string text = testing::random_text({"a", "b", " ", "  ", "\u00e9", "z", "</s>", "<s"}, 200000, 5);
    for (const SpecialPolicy& policy : {SpecialPolicy::none(), SpecialPolicy::all()}) {
      for (const int threads : {1, 2, 5}) {
        EXPECT_EQ(testing::encode_in_blocks(tokenizer, policy, text, 70001, threads), tokenizer.encode(text, policy))
            << threads;
      }
    }
  }
}

TEST(SentencePiece, BrokenVocabulariesAreRefused) {
  const auto refused = [](const std::function<void(SpmModel&)>& damage, const std::string& part) {
    SpmModel model = model_of({{"a", -1}, {"b", -2}});
    damage(model);
    EXPECT_LOAM_ERROR(Tokenizer(model), ErrorCode::kBadFormat, part);
  };
  refused([](SpmModel& m) { m.scores.pop_back(); }, "scores");
  refused([](SpmModel& m) { m.scores[260] = NAN; }, "260");
  refused([](SpmModel& m) { m.tokens[7] = "x"; }, "<0x04>");
  refused([](SpmModel& m) { m.first_byte_id = 100; }, "byte tokens");
  refused([](SpmModel& m) { m.eos_id = 1000; }, "1000");
  refused([](SpmModel& m) { m.tokens[260] = std::string(5000, 'a'); }, "5000");
  refused([](SpmModel& m) { m.tokens.clear(), m.scores.clear(); }, "0 tokens");
}

TEST(SentencePiece, DamagedFilesOfLlama2cAreRefused) {
  testing::TempDir directory;
  const auto field = [](auto value) {
    std::string bytes(sizeof(value), '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  };
  std::string good = field(int32_t{6});
  const SpmModel model = model_of({{"a", -1}});
  for (size_t i = 0; i < model.tokens.size(); ++i) {
    good += field(model.scores[i]) + field(static_cast<int32_t>(model.tokens[i].size())) + model.tokens[i];
  }
  write_file_atomic(directory / "tokenizer.bin", good);
  EXPECT_EQ(load_tokenizer(directory / "tokenizer.bin").encode("a"), (Ids{3 + ' ', 259}));
  for (size_t length = 0; length < good.size(); length += 13) {
    write_file_atomic(directory / "cut.bin", good.substr(0, length));
    EXPECT_LOAM_ERROR(load_llama2c_tokenizer(directory / "cut.bin", 260), ErrorCode::kBadFormat, "cut.bin");
  }
  for (const int32_t length : {-1, INT32_MIN, INT32_MAX, 1000000}) {
    std::string bad = good;
    std::memcpy(bad.data() + 8, &length, 4);
    write_file_atomic(directory / "bad.bin", bad);
    EXPECT_LOAM_ERROR(load_llama2c_tokenizer(directory / "bad.bin"), ErrorCode::kBadFormat, "bad.bin");
  }
}

}  // namespace
}  // namespace loam
