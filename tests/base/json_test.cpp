#include "loam/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "loam/base/philox.h"
#include "tests/harness/expect_error.h"

namespace loam {
namespace {

std::string parsed_string(const std::string& text) { return Json::parse(text).as_string(); }

const std::string kR = "\xEF\xBF\xBD";  // U+FFFD

std::string times(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Json, ReadsEveryKind) {
  const Json value = Json::parse(R"( {"a": [null, true, false, 1, -2, 1.5, "x"], "b": {}} )");
  const auto& items = value.at("a").as_array();
  ASSERT_EQ(items.size(), 7u);
  EXPECT_TRUE(items[0].is_null());
  EXPECT_TRUE(items[1].as_bool());
  EXPECT_FALSE(items[2].as_bool());
  EXPECT_EQ(items[3].as_int(), 1);
  EXPECT_EQ(items[4].as_int(), -2);
  EXPECT_EQ(items[5].as_double(), 1.5);
  EXPECT_EQ(items[6].as_string(), "x");
  EXPECT_TRUE(value.at("b").as_object().empty());
  EXPECT_EQ(value.find("c"), nullptr);
}

TEST(Json, WholeNumbersWithinInt64AreIntegers) {
  EXPECT_EQ(Json::parse("9223372036854775807").as_int(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Json::parse("-9223372036854775808").as_int(), std::numeric_limits<int64_t>::min());
  EXPECT_FALSE(Json::parse("9223372036854775808").is_int());
  EXPECT_EQ(Json::parse("9223372036854775808").as_double(), 0x1p63);
  EXPECT_FALSE(Json::parse("1.0").is_int());
  EXPECT_EQ(Json::parse("1.0").as_int(), 1);
  EXPECT_LOAM_ERROR(Json::parse("1.5").as_int(), ErrorCode::kBadFormat, "1.5");
  EXPECT_LOAM_ERROR(Json::parse("1e300").as_int(), ErrorCode::kBadFormat, "integer");
  EXPECT_LOAM_ERROR(Json::parse("9223372036854775808").as_int(), ErrorCode::kBadFormat, "integer");
  // No double says which integer it was.
  EXPECT_EQ(Json::parse("9007199254740992.0").as_int(), 9007199254740992);
  EXPECT_LOAM_ERROR(Json::parse("9007199254740993.0").as_int() + Json::parse("9007199254740994.0").as_int(),
                    ErrorCode::kBadFormat, "integer");
  EXPECT_LOAM_ERROR(Json::parse("-9223372036854775809").as_int(), ErrorCode::kBadFormat, "integer");
}

TEST(Json, KeepsOrderAndTakesTheLastOfEqualKeys) {
  const Json value = Json::parse(R"({"z":1,"a":2,"z":3})");
  EXPECT_EQ(value.as_object()[0].first, "z");
  EXPECT_EQ(value.as_object()[1].first, "a");
  EXPECT_EQ(value.at("z").as_int(), 3);
}

TEST(Json, MessagesAreShort) {
  const std::string bad =
      "\"x'; " + std::string(300000, 'y');  // a string without end, which looks like the end of a quote
  const std::string said = testing::error_of(ErrorCode::kBadFormat, [&] { Json::parse(bad); });
  EXPECT_LT(said.size(), 500u);
  EXPECT_EQ(said.find("yyy"), std::string::npos) << said;
}

// Fault 2: an escape of half a surrogate pair, or bytes that are no UTF-8, cost one character and not the document.
TEST(Json, LoneSurrogateEscapesBecomeReplacementCharacters) {
  EXPECT_EQ(parsed_string(R"("ok\ud800bad")"), "ok" + kR + "bad");
  EXPECT_EQ(parsed_string(R"("\udbc0")"), kR);
  EXPECT_EQ(parsed_string(R"("\uDC00x")"), kR + "x");
  EXPECT_EQ(parsed_string(R"("\ud83d\ude00")"), "\xF0\x9F\x98\x80");  // a whole pair: U+1F600
  EXPECT_EQ(parsed_string(R"("\ud800\ud83d\ude00")"), kR + "\xF0\x9F\x98\x80");
  EXPECT_EQ(parsed_string(R"("\ud800\u0041")"), kR + "A");
  EXPECT_EQ(parsed_string(R"("\ude00\ud83d")"), kR + kR);
  EXPECT_EQ(parsed_string(R"("\\ud800")"), "\\ud800");  // an escaped backslash, then letters
  EXPECT_EQ(parsed_string(R"("\\\ud800")"), "\\" + kR);
  EXPECT_EQ(parsed_string(R"("\"\ud800")"), "\"" + kR);
  EXPECT_EQ(Json::parse(R"({"\ud800":1})").as_object()[0].first, kR);
}

TEST(Json, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  EXPECT_EQ(parsed_string("\"a\xED\xA0\x80z\""), "a" + times(kR, 3) + "z");
  EXPECT_EQ(parsed_string("\"\xFF\xFE\""), times(kR, 2));
  // The Unicode Standard 15.0, section 3.9, tables 3-8 to 3-11.
  EXPECT_EQ(parsed_string("\"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41\""), times(kR, 8) + "A");
  EXPECT_EQ(parsed_string("\"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41\""), times(kR, 8) + "A");
  EXPECT_EQ(parsed_string("\"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42\""), times(kR, 5) + "A" + times(kR, 2) + "B");
  EXPECT_EQ(parsed_string("\"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41\""), times(kR, 4) + "A");
  // The closing quote right after an unfinished character or an escape is still seen.
  EXPECT_EQ(Json::parse("[\"\xE2\x82\",\"b\"]").as_array()[1].as_string(), "b");
  EXPECT_EQ(Json::parse("[\"caf\xC3\xA9\"]").as_array()[0].as_string(), "caf\xC3\xA9");
}

TEST(Json, ErrorsNameTheSourceAndTheByte) {
  EXPECT_LOAM_ERROR(Json::parse("[1, 2, x]", "a.json"), ErrorCode::kBadFormat, "a.json: byte 7:");
  // Replacements before the fault do not move it.
  EXPECT_LOAM_ERROR(Json::parse("[\"\xFF\xFF\xFF\", x]"), ErrorCode::kBadFormat, "byte 8:");
  EXPECT_LOAM_ERROR(Json::parse("[\"\\ud800\", x]"), ErrorCode::kBadFormat, "byte 11:");
  EXPECT_LOAM_ERROR(Json::parse("{} {}"), ErrorCode::kBadFormat, "byte 3:");
  EXPECT_LOAM_ERROR(Json::parse(std::string("1\0 2", 4)), ErrorCode::kBadFormat, "byte 1: a NUL");
  EXPECT_LOAM_ERROR(Json::parse("1e999"), ErrorCode::kBadFormat, "byte 4:");
}

TEST(Json, NestingIsLimited) {
  const std::string deep = std::string(512, '[') + std::string(512, ']');
  EXPECT_TRUE(Json::parse(deep).is_array());
  EXPECT_EQ(Json::parse(deep).dump(), deep);
  EXPECT_LOAM_ERROR(Json::parse("[" + deep + "]"), ErrorCode::kBadFormat, "byte 512: nested deeper than 512");
  EXPECT_LOAM_ERROR(Json::parse(std::string(1'000'000, '[')), ErrorCode::kBadFormat, "nested");
  EXPECT_LOAM_ERROR(Json::parse(times("{\"a\":", 100'000)), ErrorCode::kBadFormat, "nested");
  EXPECT_EQ(Json::parse("\"" + std::string(1000, '[') + "\"").as_string().size(), 1000u);
}

TEST(Json, EveryPrefixOfADocumentIsAnError) {
  const std::string text = R"({"key\u00e9": [1, -2.5e-3, true, null, "\ud83d\ude00\\", {"x": ""}]})";
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_LOAM_ERROR(Json::parse(text.substr(0, size)), ErrorCode::kBadFormat, "byte");
  }
  EXPECT_NO_THROW(Json::parse(text));
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text :
       {"",     " ",          "nul",     "NaN",     "Infinity",    "01",       "+1",      "1.",  ".5", "'a'", "{a:1}",
        "[1,]", "{\"a\":1,}", "// c\n1", "\"\\x\"", "\"\\u12g4\"", "\"a\nb\"", "\"\\ud8", "[1}", "]",  "\"a"}) {
    EXPECT_LOAM_ERROR(Json::parse(text), ErrorCode::kBadFormat, "JSON: byte");
  }
}

TEST(Json, DoublesAreShortestAndReadBackEqual) {
  // The shortest decimal that rounds to the double, as any correct printer (Python's repr) gives it.
  const std::pair<double, const char*> cases[] = {{0.1, "0.1"},
                                                  {0.3, "0.3"},
                                                  {2.0 / 3, "0.6666666666666666"},
                                                  {1.0, "1.0"},
                                                  {-0.0, "-0.0"},
                                                  {5e-324, "5e-324"},
                                                  {1e23, "1e+23"},
                                                  {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                  {0.0003, "0.0003"},
                                                  {123456.789, "123456.789"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(Json(value).dump(), text);

  const PhiloxStream random{1, 2};
  for (int i = 0; i < 100'000; ++i) {
    const auto block = random.block(i);
    double value;
    std::memcpy(&value, block.data(), sizeof value);
    if (!std::isfinite(value)) continue;
    const Json back = Json::parse(Json(value).dump());
    ASSERT_FALSE(back.is_int());
    const double read = back.as_double();
    ASSERT_EQ(std::memcmp(&read, &value, sizeof value), 0) << Json(value).dump();
  }
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
  EXPECT_EQ(Json(-std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(Json, WritesOneLineOrIndented) {
  Json value = Json::object();
  value["a"] = Json(Json::Array{1, "x\ny", nullptr});
  value["b"] = Json::object();
  value["c"]["d"] = true;
  EXPECT_EQ(value.dump(), R"({"a":[1,"x\ny",null],"b":{},"c":{"d":true}})");
  // As Python's json.dumps(value, indent=2) writes it.
  EXPECT_EQ(value.dump(2),
            "{\n  \"a\": [\n    1,\n    \"x\\ny\",\n    null\n  ],\n  \"b\": {},\n  \"c\": {\n    \"d\": true\n  }\n}");
  EXPECT_EQ(Json::parse(value.dump(2)), value);
}

TEST(Json, WrittenStringsAreAlwaysJson) {
  EXPECT_EQ(Json(std::string("\"\\\b\f\n\r\t\x01\x7F/\0", 11)).dump(),
            "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7F/\\u0000\"");
  EXPECT_EQ(Json("\xFF\xC3\xA9").dump(), "\"" + kR + "\xC3\xA9\"");
}

TEST(Json, PathsOfParts) {
  const Json json = Json::parse(R"({"model": {"merges": [["a", "b"], "c"]}, "list": [[1]]})");
  EXPECT_EQ(json.path_of(json), "");
  EXPECT_EQ(json.path_of(json.at("model").at("merges")), "model.merges");
  EXPECT_EQ(json.path_of(json.at("model").at("merges").as_array()[0].as_array()[1]), "model.merges[0][1]");
  EXPECT_EQ(json.path_of(json.at("list").as_array()[0]), "list[0]");
  EXPECT_EQ(json.path_of(Json(1)), "");
}

TEST(Json, WrongKindsAreNamed) {
  EXPECT_LOAM_ERROR(Json(1).as_string(), ErrorCode::kBadFormat, "expected a string, found an integer");
  EXPECT_LOAM_ERROR(Json("x").as_object(), ErrorCode::kBadFormat, "expected an object, found a string");
  EXPECT_LOAM_ERROR(Json::object().at("width"), ErrorCode::kBadFormat, "'width'");
}

}  // namespace
}  // namespace loam
