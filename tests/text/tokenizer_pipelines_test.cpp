// Whole tokenizers beside the library `tokenizers`: make_pipeline_fixture.py says what is in the fixture.
#include <gtest/gtest.h>

#include <algorithm>

#include "loam/base/utf8.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/expect_error.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using Ids = std::vector<int32_t>;

const Json& forms() {
  static const Json fixture = testing::fixture("tokenizer_pipelines.json");
  return fixture;
}

Tokenizer open(const Json& form) { return parse_tokenizer_json(form.at("file").dump(), form.at("name").as_string()); }

TEST(TokenizerPipelines, IdsEqualThoseOfTokenizers) {
  ASSERT_EQ(forms().as_array().size(), 16u);
  for (const Json& form : forms().as_array()) {
    const std::string& name = form.at("name").as_string();
    const Tokenizer tokenizer = open(form);
    const Tokenizer again = parse_tokenizer_json(tokenizer_json(tokenizer), name + ", written");
    EXPECT_EQ(again.fingerprint(), tokenizer.fingerprint()) << name;
    for (const Json& item : form.at("cases").as_array()) {
      const std::string& text = item.as_array()[0].as_string();
      const Ids wanted = testing::ids_of(item.as_array()[1]);
      EXPECT_EQ(tokenizer.encode(text, SpecialPolicy::all()), wanted) << name << ": " << item.as_array()[0].dump();
      EXPECT_EQ(again.encode(text, SpecialPolicy::all()), wanted) << name << ": " << item.as_array()[0].dump();
    }
  }
}

TEST(TokenizerPipelines, DecodedTextEqualsThatOfTokenizers) {
  for (const Json& form : forms().as_array()) {
    const std::string& name = form.at("name").as_string();
    const Tokenizer tokenizer = open(form);
    for (const Json& item : form.at("cases").as_array()) {
      const Ids ids = testing::ids_of(item.as_array()[1]);
      // Its decoder Metaspace shows byte tokens by their names; and a token that is looked for in normalized text is
      // shown normalized, with nothing in front.
      // It also takes every space out of the first token, where only the one in front was added.
      const bool by_name = item.as_array()[3].as_string().find("<0x") != std::string::npos;
      const bool takes_spaces = !ids.empty() && tokenizer.token_bytes(ids[0]).find(' ', 1) != std::string::npos;
      if (by_name || takes_spaces || item.as_array()[0].as_string().find("NORM") != std::string::npos) continue;
      EXPECT_EQ(replace_invalid_utf8(tokenizer.decode(ids)), item.as_array()[3].as_string())
          << name << ": " << item.as_array()[0].dump();
    }
  }
}

TEST(TokenizerPipelines, TemplatesEqualThoseOfTokenizers) {
  for (const Json& form : forms().as_array()) {
    const std::string& name = form.at("name").as_string();
    const Tokenizer tokenizer = open(form), again = parse_tokenizer_json(tokenizer_json(tokenizer), name);
    const Json::Array& framed = form.at("framed").as_array();
    for (const Tokenizer* t : {&tokenizer, &again}) {
      Ids types;
      EXPECT_EQ(t->frame(t->encode("the cat")), testing::ids_of(framed[0])) << name;
      EXPECT_EQ(t->frame(t->encode("the cat"), t->encode("low ate"), &types), testing::ids_of(framed[1])) << name;
      EXPECT_EQ(types, testing::ids_of(framed[2])) << name;
    }
  }
}

// A text cut anywhere gives the ids of the whole.
TEST(TokenizerPipelines, StreamsGiveTheIdsOfTheWhole) {
  for (const Json& form : forms().as_array()) {
    const Tokenizer tokenizer = open(form);
    for (const SpecialPolicy& policy : {SpecialPolicy::none(), SpecialPolicy::all()}) {
      std::string all;
      for (const Json& item : form.at("cases").as_array()) {
        all += item.as_array()[0].as_string();
        for (const size_t part : {1, 7}) {
          StreamEncoder encoder(tokenizer, policy, 1);
          Ids ids;
          const std::string& text = item.as_array()[0].as_string();
          for (size_t i = 0; i < text.size(); i += part) encoder.push(std::string_view(text).substr(i, part), ids);
          encoder.finish(ids);
          ASSERT_EQ(ids, tokenizer.encode(text, policy)) << form.at("name").dump() << item.as_array()[0].dump();
        }
      }
      StreamEncoder encoder(tokenizer, policy, 64);
      Ids ids;
      for (size_t i = 0; i < all.size(); i += 13) encoder.push(std::string_view(all).substr(i, 13), ids);
      encoder.finish(ids);
      EXPECT_EQ(ids, tokenizer.encode(all, policy)) << form.at("name").dump();
    }
  }
}

TEST(TokenizerPipelines, BatchesGiveTheIdsOfEachText) {
  for (const Json& form : forms().as_array()) {
    const Tokenizer tokenizer = open(form);
    std::vector<std::string_view> texts;
    for (const Json& item : form.at("cases").as_array()) texts.push_back(item.as_array()[0].as_string());
    for (const int threads : {1, 3}) {
      const auto all = tokenizer.encode_batch(texts, SpecialPolicy::all(), threads);
      ASSERT_EQ(all.size(), texts.size());
      for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(all[i], tokenizer.encode(texts[i], SpecialPolicy::all()));
    }
  }
}

TEST(TokenizerPipelines, RangesEqualThoseOfTokenizers) {
  for (const Json& form : forms().as_array()) {
    const std::string& name = form.at("name").as_string();
    // Where characters are composed or dropped, theirs is the first of them alone.
    if (name == "byte level, NFC" || name == "unigram, XLM-R") continue;
    const Tokenizer tokenizer = open(form);
    for (const Json& item : form.at("cases").as_array()) {
      const std::string& text = item.as_array()[0].as_string();
      const Encoding encoding = tokenizer.encode_with_ranges(text, SpecialPolicy::all());
      ASSERT_EQ(encoding.ids, testing::ids_of(item.as_array()[1])) << name;
      ASSERT_EQ(encoding.ranges.size(), encoding.ids.size()) << name;
      const std::vector<TextRange> ranges = character_ranges(text, encoding.ranges);
      for (size_t i = 0; i < ranges.size(); ++i) {
        if (ranges[i].begin == ranges[i].end) continue;  // a space put in front, to which they give the first character
        const Json::Array& wanted = item.as_array()[2].as_array()[i].as_array();
        EXPECT_EQ(static_cast<int64_t>(ranges[i].begin), wanted[0].as_int()) << name << item.as_array()[0].dump() << i;
        EXPECT_EQ(static_cast<int64_t>(ranges[i].end), wanted[1].as_int()) << name << item.as_array()[0].dump() << i;
      }
    }
  }
}

// The ranges of a byte-level tokenizer cut its text into what the tokens say.
TEST(TokenizerPipelines, RangesCutTheText) {
  const Tokenizer tokenizer = open(forms().as_array()[0]);
  for (const Json& item : forms().as_array()[0].at("cases").as_array()) {
    const std::string text = item.as_array()[0].as_string() + "\xff";
    const Encoding encoding = tokenizer.encode_with_ranges(text);
    size_t end = 0;
    for (size_t i = 0; i < encoding.ids.size(); ++i) {
      const auto [begin, next] = encoding.ranges[i];
      EXPECT_EQ(begin, end);
      EXPECT_EQ(text.substr(begin, next - begin), tokenizer.token_bytes(encoding.ids[i]));
      end = next;
    }
    EXPECT_EQ(end, text.size());
  }
}

TEST(TokenizerPipelines, ControlTokensOnlyWhereTheTextIsTrusted) {
  const Tokenizer tokenizer = open(forms().as_array()[0]);
  const int32_t begin = tokenizer.special_id("<s>"), end = tokenizer.special_id("</s>");
  const auto joined = [](std::initializer_list<Ids> parts) {
    Ids all;
    for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const auto encode = [&](std::string_view text, std::vector<TextRange> trusted) {
    return tokenizer.encode(text, std::span<const TextRange>(trusted));
  };
  const std::string user = " the </s> <s>cat", text = "<s>" + user + "</s>";
  const size_t close = text.size() - 4;
  EXPECT_EQ(encode(text, {{0, 3}, {close, text.size()}}), joined({{begin}, tokenizer.encode(user), {end}}));
  EXPECT_EQ(encode(text, {{0, text.size()}}), tokenizer.encode(text, SpecialPolicy::all()));
  EXPECT_EQ(encode(text, {}), tokenizer.encode(text));
  // A token that reaches out of the range is none.
  EXPECT_EQ(encode(text, {{0, 2}, {2, 3}, {close + 1, text.size()}}), tokenizer.encode(text));
  // Ordinary text is not cut where a range ends.
  EXPECT_EQ(encode("the cat sat", {{0, 2}, {5, 6}}), tokenizer.encode("the cat sat"));
  EXPECT_EQ(encode("a<s>b", {{1, 4}}), joined({tokenizer.encode("a"), {begin}, tokenizer.encode("b")}));
  EXPECT_LOAM_ERROR(encode("abc", {{2, 3}, {0, 1}}), ErrorCode::kInvalidArgument, "trusted range");
  EXPECT_LOAM_ERROR(encode("abc", {{0, 4}}), ErrorCode::kInvalidArgument, "trusted range");
  EXPECT_LOAM_ERROR(encode("abc", {{2, 1}}), ErrorCode::kInvalidArgument, "trusted range");
}

// A form of the fixture with one place changed.
template <class Change>
Tokenizer changed(size_t form, Change&& change) {
  Json file = forms().as_array()[form].at("file");
  change(file);
  return parse_tokenizer_json(file.dump(), "changed");
}

Json added(int64_t id, const std::string& text, bool special, bool normalized, bool single_word = false) {
  return Json::Object{{"id", id},        {"content", text},          {"single_word", single_word}, {"lstrip", false},
                      {"rstrip", false}, {"normalized", normalized}, {"special", special}};
}

constexpr size_t kByteLevel = 0, kLlama2 = 5, kBert = 13;

TEST(TokenizerPipelines, ByteTokensNeitherMergeNorStandForTheUnknown) {
  const auto refused = [](auto&& change, const std::string& part) {
    EXPECT_LOAM_ERROR(changed(kLlama2, change), ErrorCode::kBadFormat, part);
  };
  refused([](Json& f) { f["model"]["unk_token"] = "<0xC3>"; }, "is a byte token");
  refused(
      [](Json& f) {
        f["model"]["vocab"]["<0x41><0x42>"] = 5000;
        f["model"]["merges"].push_back(Json::Array{"<0x41>", "<0x42>"});
      },
      "which is no text");
}

TEST(TokenizerPipelines, NormalizedControlTokensAreTrustedToo) {
  const Tokenizer tokenizer =
      changed(kByteLevel, [](Json& f) { f["added_tokens"].push_back(added(700, "<|go|>", true, true)); });
  const std::vector<TextRange> whole = {{0, 6}}, none;
  EXPECT_EQ(tokenizer.encode("<|go|>", std::span<const TextRange>(whole)), Ids{700});
  EXPECT_EQ(tokenizer.encode("<|go|>", std::span<const TextRange>(none)), tokenizer.encode("<|go|>"));
  const Ids ordinary = tokenizer.encode("<|go|>");
  EXPECT_EQ(std::count(ordinary.begin(), ordinary.end(), 700), 0);
}

// What a normalizer makes of the text decides where a stream may be cut.
TEST(TokenizerPipelines, StreamsAreCutByNormalizedText) {
  const auto same_in_parts = [](const Tokenizer& tokenizer, const std::string& text) {
    StreamEncoder encoder(tokenizer, SpecialPolicy::none(), 1);
    Ids ids;
    for (const char c : text) encoder.push({&c, 1}, ids);
    encoder.finish(ids);
    EXPECT_EQ(ids, tokenizer.encode(text)) << text;
  };
  const Tokenizer lower = changed(kByteLevel, [](Json& f) { f["normalizer"] = Json::Object{{"type", "Lowercase"}}; });
  same_in_parts(lower, "a XX YY b xx yy XX yy");
  EXPECT_GT(lower.encode("XX YY").size(), 0u);
  const Tokenizer underscore = changed(kByteLevel, [](Json& f) {
    f["normalizer"] = Json::Object{{"type", "Replace"}, {"pattern", Json::Object{{"String", "_"}}}, {"content", " "}};
  });
  same_in_parts(underscore, "x_  b x_ b _ _  c");
}

// An added word that is in the vocabulary as well can begin a longer word.
TEST(TokenizerPipelines, AddedWordsStayInTheVocabulary) {
  const auto with_words = [](Json& f) {
    f["model"]["vocab"]["qz"] = 500;
    f["model"]["vocab"]["##v"] = 501;
    f["added_tokens"].push_back(added(500, "qz", false, false, true));
  };
  EXPECT_EQ(changed(kBert, with_words).encode("qzv"), (Ids{500, 501}));
}

}  // namespace
}  // namespace loam
