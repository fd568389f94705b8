// Unigram, WordPiece and words, and the files of SentencePiece, tiktoken and GGUF, against the programs they come from.
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "loam/base/base64.h"
#include "loam/text/tokenizer_files.h"
#include "loam/text/trie.h"
#include "tests/base/gguf_bytes.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using testing::bytes_of;
using testing::GgufBytes;
using testing::hard_parts;
using testing::random_text;
using Ids = std::vector<int32_t>;

void expect_cases(const Tokenizer& tokenizer, const Json& cases, size_t least) {
  ASSERT_GE(cases.as_array().size(), least);
  for (const Json& item : cases.as_array()) {
    const std::string& text = item.as_array()[0].as_string();
    const Ids wanted = testing::ids_of(item.as_array()[1]);
    EXPECT_EQ(tokenizer.encode(text), wanted) << item.as_array()[0].dump();
    const Encoding encoding = tokenizer.encode_with_ranges(text);
    EXPECT_EQ(encoding.ids, wanted) << item.as_array()[0].dump();
    EXPECT_EQ(encoding.ranges.size(), wanted.size());
  }
}

TEST(Trie, FindsWhatAMapFinds) {
  std::vector<std::string> keys{"", "a", "ab", "abc", std::string(1, '\0'), std::string("a\0b", 3), "\xff\xff"};
  for (uint64_t i = 0; i < 3000; ++i) keys.push_back(random_text(hard_parts(), 1 + static_cast<int>(i % 4), i));
  std::map<std::string_view, int32_t> map;
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < keys.size(); ++i) {
    entries.emplace_back(keys[i], static_cast<int32_t>(i));
    if (!keys[i].empty()) map.emplace(keys[i], static_cast<int32_t>(i));
  }
  const Trie trie(entries);
  for (uint64_t i = 0; i < 6000; ++i) {
    const std::string key = random_text(hard_parts(), 1 + static_cast<int>(i % 5), i / 2);
    const auto found = map.find(key);
    EXPECT_EQ(trie.find(key), found == map.end() ? -1 : found->second);
  }
  for (const auto& [key, value] : map) EXPECT_EQ(trie.find(key), value);
  EXPECT_EQ(trie.find(""), -1);
  uint32_t node = Trie::kRoot;
  EXPECT_FALSE(Trie().step(node, '\0'));
}

UnigramModel plain_unigram() {
  UnigramModel model;
  model.normalizer = Normalizer();
  model.space = {};
  return model;
}

TEST(Unigram, EqualsHuggingFaceTokenizers) {
  const Json fixture = testing::fixture("vocabularies.json");
  ASSERT_EQ(fixture.at("unigram").as_array().size(), 2u);
  for (const Json& part : fixture.at("unigram").as_array()) {
    UnigramModel model = plain_unigram();
    for (const Json& entry : part.at("vocab").as_array()) {
      model.tokens.push_back(entry.as_array()[0].as_string());
      model.scores.push_back(entry.as_array()[1].as_double());
    }
    if (part.at("bytes").as_bool()) model.first_byte_id = 1;
    expect_cases(Tokenizer(model), part.at("cases"), 150);
  }
}

// Of all ways to cut a text, those of the greatest sum hold the one that is chosen.
TEST(Unigram, NoWayToCutHasAGreaterSum) {
  UnigramModel model = plain_unigram();
  model.tokens = {"?", "a", "ab", "b", "ba", "aba", "bb", "c"};
  model.scores = {0, -2.25, -3, -2, -4.5, -6, -3.75, -9};
  const Tokenizer tokenizer(model);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = random_text({"a", "b", "c", "x"}, 12, seed);
    std::vector<double> best(text.size() + 1, -1e9);
    best[0] = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == 'x') best[i + 1] = std::max(best[i + 1], best[i] - 19);
      for (size_t t = 1; t < model.tokens.size(); ++t) {
        const size_t end = i + model.tokens[t].size();
        if (text.compare(i, model.tokens[t].size(), model.tokens[t]) == 0)
          best[end] = std::max(best[end], best[i] + model.scores[t]);
      }
    }
    const Encoding encoding = tokenizer.encode_with_ranges(text);
    double sum = 0;
    for (size_t i = 0; i < encoding.ids.size(); ++i) {
      const auto [begin, end] = encoding.ranges[i];
      sum += encoding.ids[i] > 0 ? model.scores[static_cast<size_t>(encoding.ids[i])]
                                 : -19 * static_cast<double>(end - begin);
    }
    EXPECT_EQ(sum, best[text.size()]) << text;
  }
}

TEST(Unigram, LongTextHasTheIdsOfItsParts) {
  UnigramModel model = plain_unigram();
  model.tokens = {"<unk>", "a", "aa", "b", "\u00e9"};
  model.scores = {0, -1, -1.5, -2, -3};
  for (const bool float_sums : {false, true}) {
    model.float_sums = float_sums;
    const Tokenizer tokenizer(model);
    // A part ends in b, across which no token reaches.
    const std::string part = "aaaa\u00e9xxaab";
    const Ids once = tokenizer.encode(part);
    EXPECT_EQ(once, (Ids{2, 2, 4, 0, 2, 3}));
    std::string text;
    Ids wanted;
    for (int i = 0; i < 3000; ++i) {
      text += part;
      wanted.insert(wanted.end(), once.begin(), once.end());
    }
    EXPECT_EQ(tokenizer.encode(text), wanted);
  }
}

TEST(Unigram, BadModelsAreRefused) {
  UnigramModel good = plain_unigram();
  good.tokens = {"<unk>", "a"};
  good.scores = {0, -1};
  EXPECT_EQ(Tokenizer(good).encode("ab\xff"), (Ids{1, 0}));
  const auto refused = [&](const auto& change, const std::string& part) {
    UnigramModel model = good;
    change(model);
    EXPECT_LOAM_ERROR(Tokenizer(model), ErrorCode::kBadFormat, part);
  };
  refused([](UnigramModel& m) { m.scores[1] = std::numeric_limits<double>::quiet_NaN(); }, "score of token 1 is nan");
  refused([](UnigramModel& m) { m.scores[1] = std::numeric_limits<double>::infinity(); }, "score of token 1 is inf");
  refused([](UnigramModel& m) { m.scores.push_back(0); }, "2 tokens but 3 scores");
  refused([](UnigramModel& m) { m.unknown_id = 2; }, "unknown id 2 of 2");
  refused([](UnigramModel& m) { m.first_byte_id = 0; }, "256 byte tokens");
  refused([](UnigramModel& m) { m.tokens = {}, m.scores = {}; }, "0 tokens");
  UnigramModel none = good;
  none.unknown_id = -1;
  EXPECT_LOAM_ERROR(Tokenizer(none).encode("b"), ErrorCode::kInvalidArgument, "\"b\"");
}

WordPieceModel word_pieces(const Json& part) {
  WordPieceModel model;
  for (const Json& token : part.at("vocab").as_array()) model.tokens.push_back(token.as_string());
  model.unknown_id = 1;
  model.max_characters = part.at("max").as_int();
  model.pretokenizer = Pretokenizer({{R"(\s+)", SplitBehavior::kRemoved}});
  return model;
}

TEST(WordPiece, EqualsHuggingFaceTokenizers) {
  const Json fixture = testing::fixture("vocabularies.json");
  const Json& part = fixture.at("wordpiece");
  expect_cases(Tokenizer(word_pieces(part)), part.at("cases"), 150);
}

TEST(WordPiece, ControlTokensAndRanges) {
  WordPieceModel model;
  model.tokens = {"[UNK]", "[CLS]", "ab", "##c", "\u00e9"};
  model.specials = {{"[CLS]", 1}};
  model.pretokenizer = Pretokenizer({{" ", SplitBehavior::kRemoved}});
  const Tokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.encode("[CLS] abc"), (Ids{0, 2, 3}));
  EXPECT_EQ(tokenizer.encode("[CLS] abc", SpecialPolicy::all()), (Ids{1, 2, 3}));
  const Encoding encoding = tokenizer.encode_with_ranges("abcc abx \u00e9");
  EXPECT_EQ(encoding.ids, (Ids{2, 3, 3, 0, 4}));
  EXPECT_EQ(encoding.ranges, (std::vector<TextRange>{{0, 2}, {2, 3}, {3, 4}, {5, 8}, {9, 11}}));
  model.max_characters = 0;
  EXPECT_LOAM_ERROR(Tokenizer(model), ErrorCode::kBadFormat, "at most 0 characters");
  model.unknown_id = 5;
  EXPECT_LOAM_ERROR(Tokenizer(model), ErrorCode::kBadFormat, "unknown id 5 of 5");
}

TEST(Words, OnlyWholePiecesAreTokens) {
  WordModel model;
  model.tokens = {"?", "ab", "a", "[PAD]"};
  model.specials = {{"[PAD]", 3}};
  model.pretokenizer = Pretokenizer({{" ", SplitBehavior::kRemoved}});
  EXPECT_EQ(Tokenizer(model).encode("ab a abc b [PAD] ab"), (Ids{1, 2, 0, 0, 0, 1}));
}

TEST(SentencePieceFile, EqualsThePackage) {
  const Json fixture = testing::fixture("vocabularies.json");
  const Json::Array& models = fixture.at("sentencepiece").as_array();
  ASSERT_EQ(models.size(), 8u);
  for (size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string bytes = base64_decode(models[i].at("model").as_string());
    expect_cases(parse_sentencepiece(bytes, "fixture"), models[i].at("cases"), 100);
  }
}

TEST(SentencePieceFile, EveryCutGivesATokenizerOrAnError) {
  const Json fixture = testing::fixture("vocabularies.json");
  const std::string bytes = base64_decode(fixture.at("sentencepiece").as_array()[3].at("model").as_string());
  for (size_t size = 0; size < bytes.size(); size += 7) {
    try {
      parse_sentencepiece(std::string_view(bytes).substr(0, size), "cut.model").encode("the cat");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFormat);
      EXPECT_TRUE(std::string_view(error.what()).starts_with("cut.model: ")) << error.what();
    }
  }
}

// One message field of protobuf: a length-delimited one.
std::string field(int number, std::string_view bytes) {
  return static_cast<char>(number << 3 | 2) + std::string(1, static_cast<char>(bytes.size())) + std::string(bytes);
}
std::string piece(std::string_view text, char type, float score = 0) {
  return field(1, field(1, text) + "\x15" + bytes_of(score) + "\x18" + type);
}

TEST(SentencePieceFile, WhatWouldChangeIdsIsRefused) {
  const std::string unknown = piece("<unk>", 2), letter = piece("a", 1, -1);
  const std::string bpe = field(2, "\x18\x02");
  EXPECT_EQ(parse_sentencepiece(unknown + letter + piece("\xE2\x96\x81", 1, -2), "m").encode("ab"), (Ids{2, 1, 0}));
  const auto refused = [](const std::string& bytes, const std::string& part) {
    EXPECT_LOAM_ERROR(parse_sentencepiece(bytes, "some.model"), ErrorCode::kBadFormat, "some.model: ");
    EXPECT_LOAM_ERROR(parse_sentencepiece(bytes, "some.model"), ErrorCode::kBadFormat, part);
  };
  refused("", "it has no pieces");
  refused("\xff\xff\xff", "no SentencePiece model");
  refused(unknown + letter + field(2, "\x18\x03"), "model type 3");
  refused(unknown + letter + field(2, "\xC0\x01\x01"), "treat_whitespace_as_suffix");
  refused(unknown + letter + field(5, field(2, "x")), "denormalizer");
  refused(unknown + letter + field(3, field(2, "x")), "");
  refused(unknown + letter + letter, "\"a\" is there twice");
  refused(unknown + piece("b", 2), "two pieces are the unknown one");
  refused(letter, "no unknown piece");
  refused(unknown + piece("", 1), "piece 1 is empty");
  refused(unknown + piece("a", 7), "of the type 7");
  refused(unknown + piece("a", 1, std::numeric_limits<float>::quiet_NaN()), "score of piece 1 is nan");
  refused(unknown + piece("a", 5) + bpe, "unused");
  refused(unknown + piece("<0x00>", 6), "byte_fallback is false");
  refused(unknown + letter + field(2, "\x98\x02\x01"), "byte_fallback is true");
}

TEST(TiktokenFile, EqualsThePackage) {
  const Json fixture = testing::fixture("vocabularies.json");
  const std::string& ranks = fixture.at("tiktoken").at("ranks").as_string();
  testing::TempDir directory;
  write_file_atomic(directory / "r50k_base.tiktoken", ranks);
  const Tokenizer tokenizer = load_tiktoken(directory / "r50k_base.tiktoken");
  expect_cases(tokenizer, fixture.at("tiktoken").at("cases"), 150);
  EXPECT_EQ(tokenizer.encode("<|endoftext|>", SpecialPolicy::all()), Ids{50256});
  EXPECT_EQ(tiktoken_ranks(tokenizer), ranks);
}

// Fault 1, under a published vocabulary: as many ids as tiktoken's users report, 8 letters each.
TEST(TiktokenFile, LongRunsOfOneCharacter) {
  const Path path = testing::shared_path("data/tokenizers/cl100k_base.tiktoken.gz");
  LOAM_NEED_SHARED(path);
  const Tokenizer tokenizer = load_tiktoken(path);
  for (const size_t length : {100'000, 200'000}) {
    EXPECT_EQ(tokenizer.encode(std::string(length, 'a')).size(), length / 8);
  }
}

TEST(TiktokenFile, ReadsWhatTrainingWrote) {
  const Tokenizer tokenizer(
      make_bpe_model(testing::train_on({random_text(hard_parts(), 3000, 1)}, 200), {}, Pretokenizer::gpt2()));
  testing::TempDir directory;
  write_file_atomic(directory / "a.tiktoken", tiktoken_ranks(tokenizer));
  const Tokenizer back = load_tiktoken(directory / "a.tiktoken", "gpt2");
  EXPECT_EQ(back.bpe()->merges, tokenizer.bpe()->merges);
  EXPECT_EQ(back.bpe()->merge_ids, tokenizer.bpe()->merge_ids);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::string text = random_text(hard_parts(), 40, seed);
    EXPECT_EQ(back.encode(text), tokenizer.encode(text));
  }
}

TEST(TiktokenFile, NamesDecideOrAreRefused) {
  testing::TempDir directory;
  const Path path = directory / "a.model";
  const auto refused = [&](const std::string& ranks, ErrorCode code, const std::string& part) {
    write_file_atomic(path, ranks);
    EXPECT_LOAM_ERROR(load_tiktoken(path, "gpt2"), code, part);
  };
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes += base64_encode(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte) + "\n";
  write_file_atomic(path, bytes);
  EXPECT_EQ(load_tiktoken(path, "gpt2").encode("a"), Ids{'a'});
  EXPECT_LOAM_ERROR(load_tiktoken(path), ErrorCode::kInvalidArgument, "256 ranks");
  write_file_atomic(directory / "qwen3.5.tiktoken", bytes);
  EXPECT_EQ(load_tiktoken(directory / "qwen3.5.tiktoken").special_id("<|endoftext|>"), 248044);
  EXPECT_LOAM_ERROR(load_tiktoken(path, "cl50k"), ErrorCode::kInvalidArgument, "known are r50k_base, gpt2");
  refused("YQ== 0\nYQ== 1\n", ErrorCode::kBadFormat, "rank 1 is there twice");
  refused("YQ== 0\nYg== 0\n", ErrorCode::kBadFormat, "two tokens have the rank 0");
  refused("YQ== 0\nYg==\n", ErrorCode::kBadFormat, "a.model:2: ");
  refused("YQ== -1\n", ErrorCode::kBadFormat, "a.model:1: ");
  refused("YQ== 1x\n", ErrorCode::kBadFormat, "a.model:1: ");
  refused("Y!== 1\n", ErrorCode::kBadFormat, "a.model:1: ");
  refused("YQ== 99999999\n", ErrorCode::kBadFormat, "out of proportion");
  refused("YQ== 0\n", ErrorCode::kBadFormat, "no token for the byte");
  refused(bytes + "YWI= 50256\n", ErrorCode::kBadFormat, "which is that of <|endoftext|> in gpt2");
}

// As the authors of the models list them.
TEST(TiktokenFile, SpecialTokensAreThoseOfTheEncoding) {
  struct Published {
    int32_t ranks, vocabulary;
    bool begins;
    std::vector<std::pair<const char*, int32_t>> specials;
  };
  const std::vector<Published> all = {
      {128000,
       128256,
       true,
       {{"<|begin_of_text|>", 128000},
        {"<|end_header_id|>", 128007},
        {"<|eot_id|>", 128009},
        {"<|reserved_special_token_250|>", 128255}}},
      {200000,
       202048,
       true,
       {{"<|begin_of_text|>", 200000},
        {"<|header_start|>", 200005},
        {"<|finetune_right_pad|>", 200018},
        {"<|image_start|>", 200080},
        {"<|vision_reserved_special_token_1047|>", 201133},
        {"<|reasoning_thinking_end|>", 201143},
        {"<|reserved_special_token_903|>", 202047}}},
      {248044, 248077, false, {{"<|endoftext|>", 248044}, {"<think>", 248068}, {"<|audio_pad|>", 248076}}}};
  testing::TempDir directory;
  const Path path = directory / "tokenizer.model";
  for (const Published& published : all) {
    std::string ranks;
    for (int32_t rank = 0; rank < published.ranks; ++rank) {
      // 256 bytes, then pairs and triples of them.
      const char low = static_cast<char>(rank), middle = static_cast<char>(rank >> 8);
      const std::string token = rank < 256     ? std::string(1, low)
                                : rank < 65536 ? std::string{middle, low}
                                               : std::string{static_cast<char>('a' + (rank >> 16)), middle, low};
      ranks += base64_encode(token) + " " + std::to_string(rank) + "\n";
    }
    write_file_atomic(path, ranks);
    const Tokenizer tokenizer = load_tiktoken(path);
    EXPECT_EQ(tokenizer.vocab_size(), published.vocabulary);
    for (const auto& [text, id] : published.specials) EXPECT_EQ(tokenizer.special_id(text), id) << text;
    const Ids framed = published.begins ? Ids{published.ranks, 5} : Ids{5};
    EXPECT_EQ(tokenizer.frame(Ids{5}), framed);
  }
}

// 256 bytes, "ab" and "abc" behind three control tokens; "bc", which is of a higher rank, is not in use.
TEST(TekkenFile, ControlTokensComeFirst) {
  testing::TempDir directory;
  const Path path = directory / "tekken.json";
  Json file;
  file["config"]["pattern"] = " ?[a-z]+|[^a-z ]+| ";
  file["config"]["default_vocab_size"] = 3 + 258;
  file["config"]["default_num_special_tokens"] = 3;
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {"ab", "abc", "bc"});
  file["vocab"] = Json::array();
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    Json entry;
    entry["rank"] = static_cast<int64_t>(rank);
    entry["token_bytes"] = base64_encode(tokens[rank]);
    entry["token_str"] = nullptr;
    file["vocab"].push_back(std::move(entry));
  }
  const auto load = [&](const Json& json) {
    write_file_atomic(path, json.dump());
    return load_tokenizer(directory.path());
  };
  const Tokenizer tokenizer = load(file);
  EXPECT_EQ(tokenizer.vocab_size(), 261);
  EXPECT_EQ(tokenizer.encode("abc bc</s>"), (Ids{260, 3 + ' ', 3 + 'b', 3 + 'c', 3 + '<', 3 + '/', 3 + 's', 3 + '>'}));
  EXPECT_EQ(tokenizer.encode("</s>", SpecialPolicy::all()), Ids{2});
  EXPECT_EQ(tokenizer.frame(Ids{5}), (Ids{1, 5}));
  Json named = file;
  named["special_tokens"] = Json::parse(R"([{"rank":2,"token_str":"[X]"},{"rank":0,"token_str":"<unk>"}])");
  EXPECT_EQ(load(named).encode("[X]<SPECIAL_1>", SpecialPolicy::all()), (Ids{2, 1}));
  const auto refused = [&](const std::function<void(Json&)>& damage, const std::string& part) {
    Json damaged = named;
    damage(damaged);
    EXPECT_LOAM_ERROR(load(damaged), ErrorCode::kBadFormat, part);
  };
  refused([](Json& f) { f["vocab"].as_array()[5]["rank"] = 6; }, "tekken.json: two tokens have the rank 6");
  refused([](Json& f) { f["vocab"].as_array()[5]["rank"] = -1; }, "a token has the rank -1");
  refused([](Json& f) { f["vocab"].as_array()[5]["token_bytes"] = ""; }, "the token of rank 5 has 0 bytes");
  refused([](Json& f) { f["vocab"].as_array()[5]["token_bytes"] = "YWI="; }, "is there twice");
  refused([](Json& f) { f["vocab"].as_array().resize(100); }, "261 tokens, 3 of them special, of 100");
  refused([](Json& f) { f["config"]["default_num_special_tokens"] = int64_t{1} << 40; }, "of them special");
  refused([](Json& f) { f["special_tokens"].as_array()[0]["rank"] = 3; }, "a special token has the rank 3 of 3");
  refused([](Json& f) { f["config"].as_object().clear(); }, "tekken.json: ");
}

std::vector<std::string> byte_level_tokens() {
  const Tokenizer tokenizer(make_bpe_model({{'a', 'b'}}, {"<|end|>"}, Pretokenizer::gpt2()));
  const Json vocab = Json::parse(tokenizer_json(tokenizer)).at("model").at("vocab");
  std::vector<std::string> tokens(257);
  for (const auto& [token, id] : vocab.as_object()) {
    if (id.as_int() < 257) tokens[static_cast<size_t>(id.as_int())] = token;
  }
  tokens.push_back("<|end|>");
  return tokens;
}

TEST(GgufTokenizer, ByteLevelBpe) {
  testing::TempDir directory;
  const auto write = [&](const GgufBytes& file) { write_file_atomic(directory / "a.gguf", file.file()); };
  std::vector<int32_t> types(257, 1);
  types.push_back(3);
  GgufBytes file;
  file.add("tokenizer.ggml.model", "gpt2").add_texts("tokenizer.ggml.tokens", byte_level_tokens());
  file.add_texts("tokenizer.ggml.merges", {"a b"}).add_numbers("tokenizer.ggml.token_type", GgufBytes::kI32, types);
  write(file);
  EXPECT_LOAM_ERROR(load_gguf_tokenizer(directory / "a.gguf"), ErrorCode::kBadFormat, "tokenizer.ggml.pre is missing");
  write(GgufBytes(file).add("tokenizer.ggml.pre", "gpt-3"));
  EXPECT_LOAM_ERROR(load_gguf_tokenizer(directory / "a.gguf"), ErrorCode::kBadFormat, "gpt-3");
  write(GgufBytes(file).add("tokenizer.ggml.pre", "gemma4"));
  EXPECT_LOAM_ERROR(load_gguf_tokenizer(directory / "a.gguf"), ErrorCode::kBadFormat, "gemma4");
  file.add("tokenizer.ggml.pre", "gpt-2").add("tokenizer.ggml.bos_token_id", GgufBytes::kU32, bytes_of<uint32_t>(257));
  write(file);
  const Tokenizer tokenizer = load_gguf_tokenizer(directory / "a.gguf");
  EXPECT_EQ(tokenizer.encode("ab <|end|>", SpecialPolicy::all()), (Ids{256, ' ', 257}));
  EXPECT_EQ(tokenizer.frame(Ids{1}), Ids{1});
  write(GgufBytes(file).add("tokenizer.ggml.add_bos_token", GgufBytes::kBool, "\1"));
  EXPECT_EQ(load_gguf_tokenizer(directory / "a.gguf").frame(Ids{1}), (Ids{257, 1}));
}

TEST(GgufTokenizer, SentencePieceOfBothKinds) {
  testing::TempDir directory;
  const std::string mark = "\xE2\x96\x81";
  GgufBytes file;
  file.add_texts("tokenizer.ggml.tokens", {"<unk>", "</s>", mark, mark + "a", "a", "<x>", "b"});
  file.add_numbers<float>("tokenizer.ggml.scores", GgufBytes::kF32, {0, 0, -5, -1, -3, 0, -4});
  file.add_numbers<int32_t>("tokenizer.ggml.token_type", GgufBytes::kI32, {2, 3, 1, 1, 1, 4, 5});
  file.add("tokenizer.ggml.unknown_token_id", GgufBytes::kU32, bytes_of<uint32_t>(0));
  file.add("tokenizer.ggml.eos_token_id", GgufBytes::kU32, bytes_of<uint32_t>(1));
  const auto load = [&](const GgufBytes& bytes) {
    write_file_atomic(directory / "a.gguf", bytes.file());
    return load_gguf_tokenizer(directory / "a.gguf");
  };
  // llama.cpp puts a space in front of a Unigram model's text only where the file says so.
  EXPECT_EQ(load(GgufBytes(file).add("tokenizer.ggml.model", "t5")).encode("a a"), (Ids{4, 3}));
  GgufBytes t5 = file;
  t5.add("tokenizer.ggml.model", "t5").add("tokenizer.ggml.add_space_prefix", 7, "\1");
  const Tokenizer unigram = load(t5);
  EXPECT_EQ(unigram.encode("a<x>aa b"), (Ids{3, 5, 3, 4, 2, 0}));  // b is unused
  EXPECT_EQ(unigram.frame(Ids{3}), (Ids{3, 1}));
  const Tokenizer extra = load(GgufBytes(t5).add("tokenizer.ggml.remove_extra_whitespaces", 7, "\1"));
  EXPECT_EQ(extra.encode("  a   a  "), (Ids{3, 3}));
  file.add("tokenizer.ggml.bos_token_id", GgufBytes::kU32, bytes_of<uint32_t>(0xFFFFFFFF));
  const Tokenizer bpe = load(GgufBytes(file).add("tokenizer.ggml.model", "llama"));
  EXPECT_EQ(bpe.encode("a<x>aa"), (Ids{3, 5, 3, 4}));
  EXPECT_EQ(bpe.frame(Ids{3}), Ids{3});
  const Tokenizer bare = load(GgufBytes(file)
                                  .add("tokenizer.ggml.model", "llama")
                                  .add("tokenizer.ggml.add_space_prefix", 7, std::string(1, '\0')));
  EXPECT_EQ(bare.encode("a a"), (Ids{4, 3}));
  EXPECT_LOAM_ERROR(load(GgufBytes(file).add("tokenizer.ggml.model", "rwkv")), ErrorCode::kBadFormat, "\"rwkv\"");
  EXPECT_LOAM_ERROR(load(GgufBytes().add("tokenizer.ggml.model", "t5")), ErrorCode::kBadFormat, "tokens is missing");
}

// Texts with the ids that llama.cpp publishes beside a vocabulary.
void expect_published_ids(const std::string& name) {
  const Path base = testing::shared_path("data/tokenizers/ggml-vocab-" + name + ".gguf");
  LOAM_NEED_SHARED(base.string() + ".gz");
  testing::TempDir directory;
  write_file_atomic(directory / "a.gguf", read_all(*open_input(base.string() + ".gz")));
  const Tokenizer tokenizer = load_gguf_tokenizer(directory / "a.gguf");
  const std::string texts = read_file(base.string() + ".inp"), mark = "\n__ggml_vocab_test__\n";
  LineReader lines(open_input(base.string() + ".out"));
  size_t begin = 0;
  int count = 0;
  for (std::string line; lines.next(line); ++count) {
    const size_t end = std::min(texts.find(mark, begin), texts.size());
    Ids wanted;
    std::istringstream numbers(line);
    for (int32_t id; numbers >> id;) wanted.push_back(id);
    const std::string text = texts.substr(begin, end - begin);
    EXPECT_EQ(tokenizer.encode(text), wanted) << text;
    begin = std::min(end + mark.size(), texts.size());
  }
  EXPECT_GT(count, 40);
}
// By hand: of <0x00> ... <0xFF>, the characters and the merges "a b", "mark ab" in that order.
TEST(GgufTokenizer, BpeOfCharacters) {
  testing::TempDir directory;
  const std::string mark = "\xE2\x96\x81";
  std::vector<std::string> tokens = {"<bos>", "a", "b", mark, "ab", mark + "ab"};
  std::vector<int32_t> types = {3, 1, 1, 1, 1, 1};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  GgufBytes file;
  file.add("tokenizer.ggml.model", "gemma4").add_texts("tokenizer.ggml.tokens", tokens);
  file.add_numbers("tokenizer.ggml.token_type", GgufBytes::kI32, types);
  file.add("tokenizer.ggml.bos_token_id", GgufBytes::kU32, bytes_of<uint32_t>(0));
  const auto load = [&](const std::vector<std::string>& merges) {
    write_file_atomic(directory / "a.gguf", GgufBytes(file).add_texts("tokenizer.ggml.merges", merges).file());
    return load_gguf_tokenizer(directory / "a.gguf");
  };
  const Tokenizer tokenizer = load({"a b", mark + " ab"});
  EXPECT_EQ(tokenizer.encode("ab ab ba\n"), (Ids{4, 5, 3, 2, 1, 6 + '\n'}));
  EXPECT_EQ(tokenizer.decode(Ids{4, 5, 3, 2, 1, 6 + '\n'}), "ab ab ba\n");
  EXPECT_EQ(tokenizer.frame(Ids{4}), (Ids{0, 4}));
  EXPECT_LOAM_ERROR(load({"b a"}), ErrorCode::kBadFormat, "the merge of \"b\" and \"a\"");
}

TEST(GgufTokenizer, Gpt2sPublishedIds) { expect_published_ids("gpt-2"); }
TEST(GgufTokenizer, BertsPublishedIds) { expect_published_ids("bert-bge"); }

}  // namespace
}  // namespace loam
