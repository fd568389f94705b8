#include "loam/text/tokenizer_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "loam/base/gguf.h"
#include "loam/text/byte_alphabet.h"
#include "loam/text/simple_models.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/sanitizers.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using testing::hard_parts;
using testing::random_text;
using testing::train_on;
using Ids = std::vector<int32_t>;

Tokenizer trained(const std::vector<std::string>& specials) {
  return Tokenizer(make_bpe_model(train_on({random_text(hard_parts(), 3000, 1)}, 200), specials, Pretokenizer::gpt2()));
}

TEST(TokenizerFiles, EqualsHuggingFaceTokenizers) {
  const Json fixture = testing::fixture("tokenizer_bpe.json");
  const Tokenizer tokenizer = parse_tokenizer_json(fixture.at("file").dump(), "fixture");
  const Tokenizer again = parse_tokenizer_json(tokenizer_json(tokenizer), "again");
  EXPECT_EQ(again.fingerprint(), tokenizer.fingerprint());
  ASSERT_GT(fixture.at("cases").as_array().size(), 50u);
  for (const Json& item : fixture.at("cases").as_array()) {
    const Ids wanted = testing::ids_of(item.as_array()[1]);
    EXPECT_EQ(tokenizer.encode(item.as_array()[0].as_string(), SpecialPolicy::all()), wanted)
        << item.as_array()[0].dump();
  }
  // An added word that is no control token is matched whatever the policy.
  const Ids ids = tokenizer.encode("<<extra>><|pad|>");
  EXPECT_EQ(ids[0], 340);
  EXPECT_FALSE(tokenizer.is_special(340));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.special_id("<|pad|>")), 0);
}

TEST(TokenizerFiles, WritesTheFormThatHuggingFaceWrites) {
  const Json theirs = testing::fixture("tokenizer_bpe.json").at("file");
  const Json ours = Json::parse(tokenizer_json(parse_tokenizer_json(theirs.dump(), "fixture")));
  for (const char* key : {"added_tokens", "normalizer", "pre_tokenizer", "truncation", "padding"})
    EXPECT_EQ(ours.at(key), theirs.at(key)) << key;
  for (const auto& [token, id] : theirs.at("model").at("vocab").as_object())
    EXPECT_EQ(ours.at("model").at("vocab").at(token), id);
  const Json::Array& a = ours.at("model").at("merges").as_array();
  const Json::Array& b = theirs.at("model").at("merges").as_array();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].as_string(), b[i].as_array()[0].as_string() + " " + b[i].as_array()[1].as_string());
  }
  for (const auto& [key, value] : theirs.at("model").as_object()) {
    if (key != "vocab" && key != "merges") {
      EXPECT_EQ(ours.at("model").at(key), value) << key;
    }
  }
}

TEST(TokenizerFiles, SaveAndLoadGiveTheSameTokenizer) {
  testing::TempDir directory;
  const Tokenizer tokenizer = trained({"<|endoftext|>", "<|end|>", "tab\there", "\u00e9\u4f60"});
  save_tokenizer(tokenizer, directory.path());
  EXPECT_EQ(load_tokenizer(directory.path()).fingerprint(), tokenizer.fingerprint());
  EXPECT_EQ(load_tokenizer(directory / "tokenizer.json").fingerprint(), tokenizer.fingerprint());
  EXPECT_EQ(load_tokenizer(directory / "vocab.json").fingerprint(), tokenizer.fingerprint());
  std::filesystem::remove(directory / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(directory.path()).fingerprint(), tokenizer.fingerprint());
  std::filesystem::remove(directory / "vocab.json");
  EXPECT_LOAM_ERROR(load_tokenizer(directory.path()), ErrorCode::kNotFound, "tokenizer.json");
}

TEST(TokenizerFiles, TheTokenInFrontIsKept) {
  BpeModel model = make_bpe_model({}, {"<|start|>"}, Pretokenizer::gpt2());
  model.frame = begins_with(256);
  const Tokenizer back = parse_tokenizer_json(tokenizer_json(Tokenizer(model)), "file");
  EXPECT_EQ(back.bos_id(), 256);
  EXPECT_EQ(back.encode("a"), Ids{'a'});
}

// The template of the SentencePiece fixture was written by `tokenizers`; only the id differs here.
TEST(TokenizerFiles, TheTokenInFrontIsWrittenAsHuggingFaceWritesIt) {
  BpeModel model = make_bpe_model({}, {"<s>"}, Pretokenizer::gpt2());
  model.frame = begins_with(256);
  Json wanted = testing::fixture("tokenizer_spm.json").at("file").at("post_processor");
  wanted["special_tokens"]["<s>"]["ids"] = Json::Array{256};
  EXPECT_EQ(Json::parse(tokenizer_json(Tokenizer(model))).at("post_processor"), wanted);
}

TEST(TokenizerFiles, TokensThatWouldBeWrittenAlikeAreRefused) {
  // U+0120 is how the alphabet writes a space.
  const Tokenizer tokenizer(make_bpe_model({{' ', 'a'}},
                                           {"\u0120"
                                            "a"},
                                           Pretokenizer::gpt2()));
  EXPECT_LOAM_ERROR(tokenizer_json(tokenizer), ErrorCode::kInvalidArgument, "written as");
}

// A small good file, and a way to change one place of it.
Json small_file() {
  return Json::parse(
      tokenizer_json(Tokenizer(make_bpe_model({{'a', 'b'}, {256, 'c'}}, {"<s>"}, Pretokenizer::gpt2()))));
}

// As in transformers, where they hold only if a call asks for them.
TEST(TokenizerFiles, TruncationAndPaddingChangeNoIds) {
  Json file = small_file();
  const Tokenizer plain = parse_tokenizer_json(file.dump(), "plain");
  file["truncation"] = Json::parse(R"({"direction":"Right","max_length":3,"strategy":"LongestFirst","stride":0})");
  file["padding"] = Json::parse(
      R"({"strategy":{"Fixed":8},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"[PAD]"})");
  const Tokenizer asked = parse_tokenizer_json(file.dump(), "asked");
  EXPECT_EQ(asked.encode("abcabcxyz").size(), 5u);  // abc abc x y z
  EXPECT_EQ(asked.encode("abcabcxyz"), plain.encode("abcabcxyz"));
  EXPECT_EQ(asked.fingerprint(), plain.fingerprint());
}

TEST(TokenizerFiles, WhatWouldChangeIdsIsRefused) {
  const auto refused = [](const std::function<void(Json&)>& change, const std::string& part) {
    Json file = small_file();
    change(file);
    EXPECT_LOAM_ERROR(parse_tokenizer_json(file.dump(), "some/tokenizer.json"), ErrorCode::kBadFormat, part);
    EXPECT_LOAM_ERROR(parse_tokenizer_json(file.dump(), "some/tokenizer.json"), ErrorCode::kBadFormat,
                      "some/tokenizer.json");
  };
  // A member of the wrong kind, or none: the place is named.
  refused([](Json& f) { f = Json::object(); }, "missing key 'model'");
  refused([](Json& f) { f = Json::Array{1}; }, "expected an object, found an array");
  refused([](Json& f) { f["model"] = 3; }, "model: expected an object, found an integer");
  refused([](Json& f) { f["model"] = Json::object(); }, "model: missing key 'vocab'");
  refused([](Json& f) { f["model"]["type"] = 3; }, "model.type: expected a string");
  refused([](Json& f) { f["model"]["dropout"] = "x"; }, "model.dropout: expected a number");
  refused([](Json& f) { f["model"]["ignore_merges"] = 1; }, "model.ignore_merges: expected a boolean");
  refused([](Json& f) { f["model"]["vocab"] = Json::Array{"a"}; }, "model.vocab: the vocabulary is not an object");
  refused([](Json& f) { f["model"]["vocab"]["zz"] = "7"; }, "model.vocab: the id of token \"zz\" is \"7\"");
  refused([](Json& f) { f["model"]["merges"] = Json::object(); }, "model.merges: expected an array");
  refused([](Json& f) { f["model"]["merges"].as_array()[1] = 5; },
          "model.merges[1]: expected an array, found an integer");
  refused(
      [](Json& f) {
        f["model"]["merges"].as_array()[1] = Json::Array{"a", 1};
      },
      "model.merges[1][1]: expected a string");
  refused([](Json& f) { f["pre_tokenizer"] = "ByteLevel"; }, "pre_tokenizer: expected an object, found a string");
  refused([](Json& f) { f["pre_tokenizer"] = Json::object(); }, "pre_tokenizer: missing key 'type'");
  refused([](Json& f) { f["decoder"]["type"] = 1; }, "decoder.type: expected a string");
  refused(
      [](Json& f) {
        f["post_processor"] = Json::Object{{"type", "TemplateProcessing"}};
      },
      "post_processor: missing key 'single'");
  refused([](Json& f) { f["added_tokens"] = 1; }, "added_tokens: expected an array");
  refused([](Json& f) { f["added_tokens"].as_array()[0] = 1; }, "added_tokens[0]: expected an object");
  refused([](Json& f) { f["added_tokens"].as_array()[0]["id"] = "1"; }, "added_tokens[0].id: expected an integer");
  refused([](Json& f) { f["added_tokens"].as_array()[0]["special"] = "yes"; },
          "added_tokens[0].special: expected a boolean");
  refused([](Json& f) { f["added_tokens"].push_back(Json(f["added_tokens"].as_array()[0])); }, "there twice");
  refused([](Json& f) { std::erase_if(f["model"]["vocab"].as_object(), [](auto& v) { return v.first == "~"; }); },
          "no token for the byte 0x7E");
  refused([](Json& f) { f["model"]["type"] = "Unigram"; }, "ByteLevel with a model Unigram");
  refused([](Json& f) { f["model"]["type"] = "Bigram"; }, "Bigram");
  refused([](Json& f) { f["model"]["dropout"] = 0.1; }, "dropout");
  refused([](Json& f) { f["model"]["continuing_subword_prefix"] = "##"; }, "##");
  refused([](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "</w>");
  refused(
      [](Json& f) {
        f["normalizer"] =
            Json::Object{{"type", "Sequence"}, {"normalizers", Json::Array{Json::Object{{"type", "Shout"}}}}};
      },
      "Shout");
  refused([](Json& f) { f["pre_tokenizer"] = Json::Object{{"type", "Metaspace"}}; }, "replacement");
  refused([](Json& f) { f["pre_tokenizer"] = nullptr; }, "neither byte tokens nor an unknown token");
  refused([](Json& f) { f["post_processor"] = Json::Object{{"type", "BertProcessing"}}; }, "missing key 'cls'");
  refused([](Json& f) { f["added_tokens"].as_array()[0]["id"] = 12; }, "<s>");
  refused([](Json& f) { f["added_tokens"].as_array()[0]["id"] = int64_t{1} << 40; },
          "added_tokens[0].id: 1099511627776 is no id");
  refused([](Json& f) { f["added_tokens"].as_array()[0]["id"] = 1 << 30; }, "out of proportion");
  refused([](Json& f) { f["added_tokens"].as_array()[0]["id"] = 0x1p64; }, "added_tokens[0].id: expected an integer");
  refused([](Json& f) { f["model"]["vocab"]["a"] = 0x1p64; }, "model.vocab: the id of token \"a\"");
  refused([](Json& f) { f["added_tokens"].as_array()[0]["content"] = ""; }, "empty");
  refused([](Json& f) { f["model"]["vocab"]["zz"] = 2000000000; }, "out of proportion");
  refused([](Json& f) { f["model"]["vocab"]["zz"] = -1; }, "out of proportion");
  refused([](Json& f) { f["model"]["vocab"]["zz"] = 5; }, "two tokens");
  refused([](Json& f) { f["model"]["merges"].push_back("ab zz"); }, "zz");
  refused([](Json& f) { f["model"]["merges"].push_back("c c"); }, "cc");
  refused([](Json& f) { f["model"]["merges"].push_back("abc"); }, "abc");
  refused([](Json& f) { f["model"]["merges"].push_back("a b c"); }, "a b c");
  refused([](Json& f) { f["model"]["merges"].push_back(Json::Array{"a"}); }, "merge");
}

// Whatever is wrong with a file, its name is in the message.
TEST(TokenizerFiles, ErrorsNameTheFileAndThePlace) {
  testing::TempDir directory;
  const auto refused = [&](const std::string& name, const std::string& bytes, const std::string& part) {
    write_file_atomic(directory / name, bytes);
    EXPECT_LOAM_ERROR(load_tokenizer(directory / name), ErrorCode::kBadFormat, part);
    EXPECT_LOAM_ERROR(load_tokenizer(directory / name), ErrorCode::kBadFormat, directory.path().string());
  };
  refused("tokenizer.json", "", "tokenizer.json: byte 0");
  refused("tokenizer.json", "{\"model\": }", "tokenizer.json: byte 10");
  refused("other.json", "{}", "other.json: missing key 'model'");
  refused("t.bin", "", "t.bin: 4 bytes are missing at offset 0");
  std::string llama2c(4, '\0');
  for (int i = 0; i < 259; ++i) llama2c += std::string("\0\0\0\0\1\0\0\0x", 9);
  refused("t.bin", llama2c, "t.bin: tokenizer: token 3");
  write_file_atomic(directory / "merges.txt", "#version: 0.2\na b\nabc\n");
  refused("vocab.json", "[]", "vocab.json: the vocabulary is not an object");
  refused("vocab.json", "{\"a\": null}", "vocab.json: the id of token \"a\" is null");
  refused("vocab.json", "{\"a\": 0}", "merges.txt:3: \"abc\" is not a merge");
  write_file_atomic(directory / "merges.txt", "a b\n");
  refused("vocab.json", "{\"a\": 0}", "vocab.json: a merge names \"b\"");
  write_file_atomic(directory / "merges.txt", "");
  refused("vocab.json", "{\"a\": 0}", "vocab.json: tokenizer: no token for the byte");
  std::filesystem::remove(directory / "merges.txt");
  EXPECT_LOAM_ERROR(load_tokenizer(directory / "vocab.json"), ErrorCode::kNotFound, "merges.txt");
  EXPECT_LOAM_ERROR(load_tokenizer(directory / "none.json"), ErrorCode::kNotFound, "none.json");
  std::filesystem::create_directory(directory / "folder");
  EXPECT_LOAM_ERROR(load_tokenizer(directory / "folder"), ErrorCode::kNotFound, "folder: none of tokenizer.json");
  std::filesystem::create_directory(directory / "folder" / "tokenizer.json");
  EXPECT_LOAM_ERROR(load_tokenizer(directory / "folder"), ErrorCode::kNotFound, "folder/tokenizer.json: none of");
  if (::geteuid() == 0) return;  // to whom no file is closed
  write_file_atomic(directory / "closed.json", "{}");
  std::filesystem::permissions(directory / "closed.json", std::filesystem::perms::none);
  EXPECT_LOAM_ERROR(load_tokenizer(directory / "closed.json"), ErrorCode::kIo, "closed.json: cannot open");
}

// Eight times the added tokens take eight times the processor time, not 64 times.
TEST(TokenizerFiles, ManyAddedTokensLoadInLinearTime) {
  const auto seconds = [](int count) {
    Json file = small_file();
    for (int i = 0; i < count; ++i) {
      file["added_tokens"].push_back(Json::Object{
          {"id", int64_t{1000} + i}, {"content", "<extra " + std::to_string(i) + ">"}, {"special", i % 2 == 0}});
    }
    const std::string text = file.dump();
    const double start = testing::thread_seconds();
    const Tokenizer tokenizer = parse_tokenizer_json(text, "f");
    const double end = testing::thread_seconds();
    EXPECT_EQ(tokenizer.encode("<extra 7>"), Ids{1007});
    return end - start;
  };
  if (testing::kSanitized) {  // where time is the sanitizer's
    seconds(8'000);
    return;
  }
  double growth = 100;
  for (int round = 0; round < 5 && growth >= 24; ++round) growth = std::min(growth, seconds(64'000) / seconds(8'000));
  EXPECT_LT(growth, 24);
}

TEST(TokenizerFiles, BrokenJsonIsRefused) {
  EXPECT_LOAM_ERROR(parse_tokenizer_json("", "f"), ErrorCode::kBadFormat, "f");
  EXPECT_LOAM_ERROR(parse_tokenizer_json("[]", "f"), ErrorCode::kBadFormat, "");
  EXPECT_LOAM_ERROR(parse_tokenizer_json("{}", "f"), ErrorCode::kBadFormat, "model");
  const std::string good = small_file().dump();
  for (size_t length = 0; length + 2 < good.size(); length += 97) {
    EXPECT_LOAM_ERROR(parse_tokenizer_json(good.substr(0, length), "f"), ErrorCode::kBadFormat, "f");
  }
}

TEST(TokenizerFiles, SplitByThePatternAndThenBytesIsTheSame) {
  Json file = small_file();
  const std::string plain = parse_tokenizer_json(file.dump(), "f").fingerprint();
  Json bytes = file.at("pre_tokenizer");
  bytes["use_regex"] = false;
  Json split = Json::Object{{"type", "Split"},
                            {"pattern", Json::Object{{"Regex", Pretokenizer::gpt2().splits()[0].regex}}},
                            {"behavior", "Isolated"},
                            {"invert", false}};
  const auto with_split = [&](const Json& step) {
    Json changed = file;
    changed["pre_tokenizer"] = Json::Object{{"type", "Sequence"}, {"pretokenizers", Json::Array{step, bytes}}};
    return changed.dump();
  };
  EXPECT_EQ(parse_tokenizer_json(with_split(split), "f").fingerprint(), plain);
  Json other = split;
  other["behavior"] = "Sideways";
  EXPECT_LOAM_ERROR(parse_tokenizer_json(with_split(other), "f"), ErrorCode::kBadFormat,
                    "pre_tokenizer.pretokenizers[0].behavior: \"Sideways\"");
  other = split;
  other["pattern"]["Regex"] = "(a";
  EXPECT_LOAM_ERROR(parse_tokenizer_json(with_split(other), "f"), ErrorCode::kBadFormat,
                    "f: pre_tokenizer: the regex \"(a\" is wrong: missing closing parenthesis at offset 2");
}

TEST(TokenizerFiles, SplitsAreReadAndWritten) {
  Json file = small_file();
  const auto with_steps = [&](Json::Array steps) {
    file["pre_tokenizer"] = Json::Object{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
    return parse_tokenizer_json(file.dump(), "f");
  };
  const auto step = [](const std::string& text) { return Json::parse(text, "step"); };
  const Json bytes = step(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})");
  const Tokenizer tokenizer = with_steps({
      step(R"({"type": "Split", "pattern": {"String": "(."}, "behavior": "MergedWithNext", "invert": false})"),
      step(R"({"type": "Digits", "individual_digits": true})"),
      step(R"({"type": "Punctuation", "behavior": "Contiguous"})"),
      step(R"({"type": "WhitespaceSplit"})"),
      bytes,
      step(R"({"type": "Split", "pattern": {"Regex": "[0-9]{3}"}, "behavior": "Isolated", "invert": true})"),
  });
  const std::vector<Split> wanted = {
      {R"(\(\.)", SplitBehavior::kMergedWithNext},         {R"(\p{N})"},
      {R"([\p{P}$+<=>^`|~])", SplitBehavior::kContiguous}, {R"(\s)", SplitBehavior::kRemoved},
      {"[0-9]{3}", SplitBehavior::kIsolated, true},
  };
  EXPECT_EQ(tokenizer.bpe()->pretokenizer.splits(), wanted);
  const Tokenizer again = parse_tokenizer_json(tokenizer_json(tokenizer), "f");
  EXPECT_EQ(again.bpe()->pretokenizer.splits(), wanted);
  EXPECT_EQ(again.fingerprint(), tokenizer.fingerprint());
  EXPECT_NE(with_steps({bytes}).fingerprint(), tokenizer.fingerprint());
  EXPECT_EQ(with_steps({bytes}).bpe()->pretokenizer.splits().size(), 0u);
  EXPECT_LOAM_ERROR(with_steps({bytes, step(R"({"type": "Digits"})")}), ErrorCode::kBadFormat,
                    "\"Digits\"} is not supported with a byte-level model");
  EXPECT_LOAM_ERROR(with_steps({bytes, bytes}), ErrorCode::kBadFormat, "two pre_tokenizers ByteLevel");
  EXPECT_LOAM_ERROR(with_steps({step(R"({"type": "Digits"})")}), ErrorCode::kBadFormat,
                    "neither byte tokens nor an unknown token");
}

// The pair vocab.json and merges.txt with those of GPT-2's merges that the texts of llama.cpp meet: the ids that it
// publishes, and the counts of long runs under the whole vocabulary (fault 1). make_gpt2_fixture.py says whence.
TEST(TokenizerFiles, APartOfGpt2GivesItsIds) {
  const Json part = testing::fixture("gpt2_part.json");
  Json::Object vocab;
  const auto add_bytes = [&](int first, int last) {
    for (int byte = first; byte <= last; ++byte) {
      vocab.emplace_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))), static_cast<int64_t>(vocab.size()));
    }
  };
  add_bytes('!', '~');
  add_bytes(0xA1, 0xAC);
  add_bytes(0xAE, 0xFF);
  add_bytes(0, ' ');
  add_bytes(0x7F, 0xA0);
  add_bytes(0xAD, 0xAD);
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : part.at("merges").as_array()) {
    const std::string& text = merge.as_array()[1].as_string();
    std::string made = text;
    made.erase(made.find(' '), 1);
    vocab.emplace_back(made, 256 + merge.as_array()[0].as_int());
    merges += text + "\n";
  }
  vocab.emplace_back("<|endoftext|>", 50256);
  testing::TempDir directory;
  write_file_atomic(directory / "vocab.json", Json(std::move(vocab)).dump());
  write_file_atomic(directory / "merges.txt", merges);
  const Tokenizer tokenizer = load_tokenizer(directory.path());
  EXPECT_EQ(tokenizer.end_of_text_id(), 50256);
  ASSERT_GT(part.at("cases").as_array().size(), 40u);
  for (const Json& item : part.at("cases").as_array()) {
    const std::string& text = item.as_array()[0].as_string();
    EXPECT_EQ(tokenizer.encode(text), testing::ids_of(item.as_array()[1])) << text;
  }
  for (const Json& run : part.at("runs").as_array()) {
    const std::string text(static_cast<size_t>(run.as_array()[1].as_int()), run.as_array()[0].as_string()[0]);
    EXPECT_EQ(tokenizer.count(text), run.as_array()[2].as_int());
  }
}

class Gpt2Vocab : public ::testing::Test {
 protected:
  void SetUp() override {
    const Path path = testing::shared_path("data/tokenizers/ggml-vocab-gpt-2.gguf.gz");
    LOAM_NEED_SHARED(path);
    const Gguf file = Gguf::parse(read_all(*open_input(path)), "vocabulary");
    const auto& tokens = file.at<std::vector<std::string>>("tokenizer.ggml.tokens");
    const auto& listed = file.at<std::vector<std::string>>("tokenizer.ggml.merges");
    ASSERT_EQ(tokens.size(), 50257u);
    ASSERT_EQ(listed.size(), 50000u);
    Json::Object ids;
    std::string merges = "#version: 0.2\n";
    for (size_t id = 0; id < tokens.size(); ++id) ids.emplace_back(tokens[id], static_cast<int64_t>(id));
    for (const std::string& merge : listed) merges += merge + "\n";
    write_file_atomic(directory_ / "vocab.json", Json(std::move(ids)).dump());
    write_file_atomic(directory_ / "merges.txt", merges);
  }
  testing::TempDir directory_;
};

// Texts with the ids that llama.cpp publishes beside the vocabulary.
TEST_F(Gpt2Vocab, IdsOfHardTexts) {
  const Tokenizer tokenizer = load_tokenizer(directory_.path());
  EXPECT_EQ(tokenizer.vocab_size(), 50257);
  EXPECT_EQ(tokenizer.end_of_text_id(), 50256);
  const std::string texts = read_file(testing::shared_path("data/tokenizers/ggml-vocab-gpt-2.gguf.inp"));
  LineReader lines(open_input(testing::shared_path("data/tokenizers/ggml-vocab-gpt-2.gguf.out")));
  const std::string separator = "\n__ggml_vocab_test__\n";
  int cases = 0;
  for (size_t from = 0; from < texts.size(); ++cases) {
    const size_t end = std::min(texts.find(separator, from), texts.size());
    const std::string text = texts.substr(from, end - from);
    std::string line, ids;
    if (!lines.next(line)) break;
    for (const int32_t id : tokenizer.encode(text)) ids += " " + std::to_string(id);
    EXPECT_EQ(ids, line) << text;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    from = end + separator.size();
  }
  EXPECT_GT(cases, 40);
}

// Published counts of tiktoken's r50k (GPT-2's) for repeated characters, and that the file written again is the same
// tokenizer.
TEST_F(Gpt2Vocab, RepeatedCharactersAndSaving) {
  const Tokenizer tokenizer = load_tokenizer(directory_.path());
  EXPECT_EQ(tokenizer.encode(std::string(1000000, '^')).size(), 250000u);
  EXPECT_EQ(tokenizer.encode(std::string(1000000, 'a')).size(), 250000u);  // by the Python package `tokenizers`
  testing::TempDir other;
  save_tokenizer(tokenizer, other.path());
  EXPECT_EQ(load_tokenizer(other / "tokenizer.json").fingerprint(), tokenizer.fingerprint());
  EXPECT_EQ(read_file(other / "merges.txt"), read_file(directory_ / "merges.txt"));
}

// What Hugging Face's format cannot tell from ordinary tokens is refused before anything is learned.
TEST(SpecialTokens, WhatTheFilesCannotHoldIsRefused) {
  for (const char* good : {"<|end|>", "<s>", "the", "<|d\u00e9but|>", "ab"}) check_special_token(good);
  for (const char* bad : {"", "a", "\u00e9", "x\xff", "<0x41>", "\u0120the", "\u010a"})
    EXPECT_LOAM_ERROR(check_special_token(bad), ErrorCode::kInvalidArgument, "");
  EXPECT_LOAM_ERROR(check_special_token(std::string(1025, 'x')), ErrorCode::kInvalidArgument, "1025");
}

TEST(WordModel, WordsThatAreNotUtf8AreLeftOutAndTheFileReadsBack) {
  const WordModel model =
      make_word_model({{"caf\xe9", 3}, {"caf\xe8", 2}, {"tea", 1}}, {"<|end|>"}, Pretokenizer::gpt2());
  EXPECT_EQ(model.tokens, (std::vector<std::string>{"<unk>", "tea", "<|end|>"}));
  const Tokenizer tokenizer(model), again = parse_tokenizer_json(tokenizer_json(tokenizer), "test");
  EXPECT_EQ(again.encode("tea"), (std::vector<int32_t>{1}));
  EXPECT_EQ(again.vocab_size(), 3);
}

}  // namespace
}  // namespace loam
