#include "loam/text/normalizer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "loam/base/base64.h"
#include "loam/base/utf8.h"
#include "loam/text/unicode.h"
#include "tests/harness/expect_error.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using Steps = std::vector<NormalizerStep>;

const Json& cases() {
  static const Json read = testing::fixture("normalizers.json");
  return read;
}

std::string table() { return base64_decode(cases().at("table").as_string()); }

NormalizerStep step_of(const Json& json) {
  const std::string& type = json.at("type").as_string();
  const auto flag = [&](const char* key) { return json.at(key).as_bool(); };
  if (type == "NFC") return normal::UnicodeForm{false, true};
  if (type == "NFD") return normal::UnicodeForm{false, false};
  if (type == "NFKC") return normal::UnicodeForm{true, true};
  if (type == "NFKD") return normal::UnicodeForm{true, false};
  if (type == "Lowercase") return normal::Lowercase{};
  if (type == "StripAccents") return normal::StripAccents{};
  if (type == "Strip") return normal::Strip{flag("strip_left"), flag("strip_right")};
  if (type == "Prepend") return normal::Prepend{json.at("prepend").as_string()};
  if (type == "Nmt") return normal::Nmt{};
  if (type == "Precompiled") return normal::Precompiled{table()};
  if (type == "BertNormalizer") {
    return normal::Bert{flag("clean_text"), flag("handle_chinese_chars"), flag("strip_accents"), flag("lowercase")};
  }
  const Json* regex = json.at("pattern").find("Regex");
  const std::string& pattern = (regex ? *regex : json.at("pattern").at("String")).as_string();
  return normal::Replace{pattern, json.at("content").as_string(), regex != nullptr};
}

Steps steps_of(const Json& json) {
  if (json.at("type").as_string() != "Sequence") return {step_of(json)};
  Steps steps;
  for (const Json& step : json.at("normalizers").as_array()) steps.push_back(step_of(step));
  return steps;
}

std::vector<Normalizer> all_normalizers() {
  std::vector<Normalizer> all;
  for (const Json& item : cases().at("cases").as_array()) all.emplace_back(steps_of(item.at("steps")));
  all.emplace_back(Steps{normal::Precompiled{table(), true}});
  all.emplace_back(Steps{normal::Precompiled{table(), true}, normal::Replace{" ", "\u2581"}});
  return all;
}

// Characters that steps change, alone and together, and bytes that are no UTF-8.
std::string odd_text(int length, uint64_t seed) {
  // clang-format off
  static const std::vector<std::string> parts = {
      " ", " ", "\n", "\r", "\t", "\v", "\u3000", "\u00a0", "\u2028", "a", "b", "c", "A", "e", "x", "ab", "aa", "k",
      "\u00e9", "\u1ebf", "\u0130", "\u00df", "\u0301", "\u0323", "\u0302", "\u0345", "\u093e", "\u20dd", "\u4f60",
      "\u597d", "\uf900", "\u1100", "\u1161", "\u11a8", "\uac00", "\u304b", "\u3099", "\ufb01", "\uff21", "\u2468",
      "\u200b", "\u00ad", "\ufffd", "\u2581", "\x01", "\x7f", "\u0085", "\u0600", "\u0d4e", "<", "\u0338", "\u00a8",
      "\ufdfa", "\U0001f600", "\u200d", "\U00011099", "\U000110ba", "\xff", "\xe4", "\xbd", "\xc2", "\xed\xa0\x80",
  };
  // clang-format on
  return testing::random_text(parts, length, seed);
}

TEST(Normalizer, EqualsHuggingFacesLibrary) {
  const Json::Array& texts = cases().at("texts").as_array();
  ASSERT_GT(cases().at("cases").as_array().size(), 30u);
  for (const Json& item : cases().at("cases").as_array()) {
    const Normalizer normalizer(steps_of(item.at("steps")));
    const Json::Array& wanted = item.at("wanted").as_array();
    ASSERT_EQ(wanted.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      const Json& result = wanted[i].is_null() ? texts[i] : wanted[i];
      EXPECT_EQ(Json(normalizer.apply(texts[i].as_string())).dump(), result.dump())
          << normalizer.description() << " of " << texts[i].dump();
    }
  }
}

TEST(Normalizer, LongestMatchEqualsSentencePiece) {
  const Normalizer normalizer({normal::Precompiled{table(), true}});
  const Json::Array& texts = cases().at("texts").as_array();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(normalizer.apply(texts[i].as_string()), cases().at("longest").as_array()[i].as_string())
        << texts[i].dump();
  }
}

TEST(Normalizer, WithoutStepsChangesNothing) {
  const Normalizer normalizer;
  EXPECT_TRUE(normalizer.empty());
  EXPECT_TRUE(Normalizer(Steps{}).empty());
  EXPECT_TRUE(normalizer.cuts_before_spaces());
  EXPECT_EQ(normalizer.description(), "");
  std::vector<TextRange> origins;
  EXPECT_EQ(normalizer.apply("\u00e9x", origins), "\u00e9x");
  EXPECT_EQ(origins, (std::vector<TextRange>{{0, 1}, {1, 2}, {2, 3}}));
}

TEST(Normalizer, SaysWhereBytesComeFrom) {
  const auto origins_of = [](Steps steps, std::string_view text) {
    std::vector<TextRange> origins;
    Normalizer(std::move(steps)).apply(text, origins);
    return origins;
  };
  using Ranges = std::vector<TextRange>;
  // "<" | "A" "i" U+0307: the two of U+0130 come from its two bytes.
  EXPECT_EQ(origins_of({normal::Prepend{"<"}, normal::Lowercase{}}, "A\u0130"),
            (Ranges{{0, 0}, {0, 1}, {1, 3}, {1, 3}, {1, 3}}));
  // "e" and its accent become one character; the ligature two.
  EXPECT_EQ(origins_of({normal::UnicodeForm{true, true}}, "xe\u0301\ufb01y"),
            (Ranges{{0, 1}, {1, 4}, {1, 4}, {4, 7}, {4, 7}, {7, 8}}));
  // Through two steps: "aa" becomes "\u00e9", that "e" and an accent.
  EXPECT_EQ(origins_of({normal::Replace{"aa", "\u00e9"}, normal::UnicodeForm{false, false}}, "baab"),
            (Ranges{{0, 1}, {1, 3}, {1, 3}, {1, 3}, {3, 4}}));
  EXPECT_EQ(origins_of({normal::Strip{}}, "\u3000ab "), (Ranges{{3, 4}, {4, 5}}));
  // What is put between bytes of one origin has this origin.
  EXPECT_EQ(origins_of({normal::Replace{"c", "ab"}, normal::Replace{"", "-"}}, "c"),
            (Ranges{{0, 0}, {0, 1}, {0, 1}, {0, 1}, {1, 1}}));
}

TEST(Normalizer, OriginsAscendAndNameTheSourceOfEachPart) {
  for (const Normalizer& normalizer : all_normalizers()) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const std::string text = odd_text(30, seed);
      std::vector<TextRange> origins;
      const std::string result = normalizer.apply(text, origins);
      EXPECT_EQ(result, normalizer.apply(text));
      ASSERT_EQ(origins.size(), result.size());
      TextRange before;
      for (size_t i = 0; i < result.size(); ++i) {
        const TextRange range = origins[i];
        ASSERT_LE(range.begin, range.end);
        ASSERT_LE(range.end, text.size());
        ASSERT_LE(before.begin, range.begin);
        ASSERT_LE(before.end, range.end);
        if (range.end == range.begin + 1 && static_cast<unsigned char>(text[range.begin]) >= 0x80) {
          ASSERT_EQ(result[i], text[range.begin]);
        }
        before = range;
      }
    }
  }
}

// Per step, the text before a place where the range of origin changes, and the text from it on, are each normalized to
// the parts of the result, where the step looks at no neighbours.
TEST(Normalizer, PartsOfTheSourceBecomePartsOfTheResult) {
  for (const NormalizerStep& step :
       Steps{normal::UnicodeForm{true, true}, normal::UnicodeForm{false, false}, normal::Lowercase{},
             normal::StripAccents{}, normal::Bert{}, normal::Nmt{}, normal::Replace{"aa", "\u00e9"}}) {
    const Normalizer normalizer({step});
    int cuts = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const std::string text = odd_text(30, seed);
      std::vector<TextRange> origins;
      const std::string result = normalizer.apply(text, origins);
      for (size_t i = 1; i < result.size(); ++i) {
        const size_t cut = origins[i].begin;
        if (origins[i - 1].end != cut || text[cut] != ' ') continue;
        EXPECT_EQ(normalizer.apply(text.substr(0, cut)), result.substr(0, i)) << normalizer.description();
        EXPECT_EQ(normalizer.apply(text.substr(cut)), result.substr(i)) << normalizer.description();
        ++cuts;
      }
    }
    EXPECT_GT(cuts, 20) << normalizer.description();
  }
}

TEST(Normalizer, KeepsBytesThatAreNotUtf8) {
  for (const Normalizer& normalizer : all_normalizers()) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const std::string text = odd_text(30, seed);
      const auto invalid = [](std::string_view s) {
        std::string bytes;
        for (size_t at = 0; at < s.size();) {
          const Utf8Char c = decode_utf8(s, at);
          if (!c.valid) bytes += s.substr(at, static_cast<size_t>(c.length));
          at += static_cast<size_t>(c.length);
        }
        return bytes;
      };
      EXPECT_EQ(invalid(normalizer.apply(text)), invalid(text)) << normalizer.description();
    }
  }
}

// As cuts_before_spaces() says.
TEST(Normalizer, TextMayBeCutBeforeSpacesWhereItSaysSo) {
  std::vector<Normalizer> all = all_normalizers();
  // Each is cut though it must not be, if one of the rules is forgotten.
  for (const Steps& steps : std::vector<Steps>{
           {normal::Nmt{}, normal::Replace{" {2,}", " ", true}},
           {normal::StripAccents{}, normal::Replace{"\\s+", "", true}},
           {normal::Replace{" ", "\u0301"}, normal::UnicodeForm{}},
           {normal::Replace{" ", ""}, normal::Replace{"aa", "b"}},
           {normal::Replace{" ", "a"}, normal::Replace{"aa", "b"}},
           {normal::StripAccents{}, normal::Precompiled{table()}},
           {normal::Replace{"\\s*", "-", true}},
           {normal::Bert{}, normal::Replace{"a ", "b"}},
           {normal::Replace{" b", "a"}, normal::Replace{"ba", "c"}},
       }) {
    all.emplace_back(steps);
  }
  const auto may_end = [](uint32_t c) {
    const std::string_view kinds = "LLLLLMMMNNNPPPPPPPSSSS";
    return static_cast<size_t>(CharProperties::of(c).category()) < kinds.size();
  };
  size_t cut = 0;
  for (const Normalizer& normalizer : all) {
    if (!normalizer.cuts_before_spaces()) continue;
    ++cut;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const std::string text = odd_text(12, seed);
      const std::string whole = normalizer.apply(text);
      for (size_t at = 0; at < text.size();) {
        const Utf8Char c = decode_utf8(text, at);
        at += static_cast<size_t>(c.length);
        if (at == text.size() || !c.valid || !may_end(c.code_point)) continue;
        if (text[at] != ' ' && text[at] != '\n' && text[at] != '\r') continue;
        EXPECT_EQ(normalizer.apply(text.substr(0, at)) + normalizer.apply(text.substr(at)), whole)
            << normalizer.description() << " of " << Json(text).dump() << " at " << at;
      }
    }
  }
  EXPECT_GT(cut, 20u);
  EXPECT_LT(cut, all.size() - 10);
}

TEST(Normalizer, UsualListsCanBeCut) {
  const normal::Replace mark{" ", "\u2581"};
  EXPECT_TRUE(Normalizer({mark}).cuts_before_spaces());
  EXPECT_TRUE(Normalizer({normal::UnicodeForm{}}).cuts_before_spaces());
  EXPECT_TRUE(Normalizer({normal::Bert{}}).cuts_before_spaces());
  EXPECT_TRUE(
      Normalizer({normal::UnicodeForm{true, false}, normal::StripAccents{}, normal::Lowercase{}}).cuts_before_spaces());
  EXPECT_TRUE(Normalizer({normal::UnicodeForm{true}, normal::Replace{" {2,}", " ", true}, mark}).cuts_before_spaces());
  EXPECT_TRUE(Normalizer({normal::Precompiled{table()}}).cuts_before_spaces());
  EXPECT_TRUE(Normalizer({normal::Precompiled{table(), true}, mark}).cuts_before_spaces());
  EXPECT_FALSE(Normalizer({normal::Prepend{"\u2581"}, mark}).cuts_before_spaces());
  EXPECT_FALSE(Normalizer({normal::Strip{}}).cuts_before_spaces());
  EXPECT_FALSE(Normalizer({normal::Replace{"a b", ""}}).cuts_before_spaces());
  EXPECT_FALSE(Normalizer({normal::Replace{"a\\s", "", true}}).cuts_before_spaces());
}

TEST(Normalizer, DescriptionTellsStepsApart) {
  std::vector<Normalizer> all = all_normalizers();
  all.emplace_back(Steps{normal::Replace{"\\x01", ""}});
  all.emplace_back(Steps{normal::Replace{"\x01", ""}});
  all.emplace_back(Steps{normal::Replace{"a\" by \"b", "c"}});
  all.emplace_back(Steps{normal::Replace{"a", "b\" by \"c"}});
  std::vector<std::string> seen;
  for (const Normalizer& normalizer : all) {
    const std::string line = normalizer.description();
    EXPECT_EQ(printable(line), line);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), line), 0) << line;
    EXPECT_EQ(Normalizer(normalizer.steps()).description(), line);
    seen.push_back(line);
  }
}

TEST(Normalizer, LongInputTakesTimeInProportion) {
  // Each is one segment, one match or one cluster as a whole; with quadratic work it would not end soon.
  const auto repeated = [](std::string_view part) {
    std::string text = "e";
    while (text.size() < 300'000) text += part;
    return text;
  };
  for (const NormalizerStep& step :
       Steps{normal::UnicodeForm{true, true}, normal::Strip{}, normal::Bert{}, normal::Replace{"ee", "e"},
             normal::Precompiled{table()}, normal::Precompiled{table(), true}}) {
    const Normalizer normalizer({step});
    for (const char* part : {"\u0301\u0323", "\u200d", "\u1161", " ", "\u0600", "e"}) {
      std::vector<TextRange> origins;
      EXPECT_EQ(normalizer.apply(repeated(part), origins).empty(), false);
    }
  }
  const std::string marks = Normalizer({normal::UnicodeForm{}}).apply(repeated("\u0301\u0323"));
  EXPECT_EQ(marks.substr(0, 7), "\u1eb9\u0323\u0323");
  EXPECT_EQ(marks.substr(marks.size() - 4), "\u0301\u0301");
}

TEST(Normalizer, RefusesWhatCannotWork) {
  EXPECT_LOAM_ERROR(Normalizer(Steps(65, normal::Lowercase{})), ErrorCode::kInvalidArgument, "65 steps, more than 64");
  EXPECT_LOAM_ERROR(Normalizer({normal::Replace{"(", "", true}}), ErrorCode::kInvalidArgument,
                    "the regex \"(\" is wrong");
  EXPECT_LOAM_ERROR(Normalizer({normal::Replace{"\xff", ""}}), ErrorCode::kInvalidArgument, "is not UTF-8");
  EXPECT_LOAM_ERROR(Normalizer({normal::Precompiled{"abc"}}), ErrorCode::kBadFormat, "3 bytes are too few");
  const std::string good = table();
  for (const uint32_t bytes : {0u, 3u, 0xFFFFFFFCu}) {
    std::string bad = good;
    for (int i = 0; i < 4; ++i) bad[i] = static_cast<char>(bytes >> (8 * i));
    EXPECT_LOAM_ERROR(Normalizer({normal::Precompiled{bad}}), ErrorCode::kBadFormat,
                      "a double array of " + std::to_string(bytes) + " bytes");
  }
  // 2^64 bytes of one.
  const Normalizer doubling(Steps(64, normal::Replace{"a", "aa"}));
  EXPECT_LOAM_ERROR(doubling.apply("a"), ErrorCode::kInvalidArgument, "more than 1048640 bytes");
}

}  // namespace
}  // namespace loam
