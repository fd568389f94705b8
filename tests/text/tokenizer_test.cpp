#include "loam/text/tokenizer.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <functional>
#include <set>

#include "loam/base/utf8.h"
#include "loam/text/stream_decode.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/sanitizers.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using testing::hard_parts;
using testing::model_of;
using testing::random_text;
using testing::slow_encode;
using testing::train_on;
using Ids = std::vector<int32_t>;

Tokenizer trained(const std::vector<std::string>& specials = {}) {
  std::vector<std::string> corpus = {random_text(hard_parts(), 3000, 1),
                                     random_text({"low ", "lower ", "newest ", "aa", "aaaa "}, 3000, 2)};
  return Tokenizer(make_bpe_model(train_on(corpus, 400), specials, Pretokenizer::gpt2()));
}

TEST(Tokenizer, TheCatAte) {
  // Stanford's CS336: ids 0 ' ', 1 a, 2 c, 3 e, 4 h, 5 t, 6 th, 7 ' c', 8 ' a', 9 the, 10 ' at'; the other bytes follow
  // here.
  BpeModel model;
  model.tokens = {" ", "a", "c", "e", "h", "t", "th", " c", " a", "the", " at"};
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token(1, static_cast<char>(byte));
    if (std::string(" aceht").find(token) == std::string::npos) model.tokens.push_back(token);
  }
  model.merges = {{5, 4}, {0, 2}, {0, 1}, {6, 3}, {8, 5}};
  model.merge_ids = {6, 7, 8, 9, 10};
  const Tokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.encode("the cat ate"), (Ids{9, 7, 1, 5, 10, 3}));
  EXPECT_EQ(tokenizer.decode(Ids{9, 7, 1, 5, 10, 3}), "the cat ate");
}

TEST(Tokenizer, EqualsTheSlowReference) {
  const Tokenizer tokenizer = trained();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = random_text(hard_parts(), 60, 1000 + seed);
    ASSERT_EQ(tokenizer.encode(text), slow_encode(*tokenizer.bpe(), text)) << text;
  }
  // Pieces long enough for the queues of ranks.
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::string text =
        random_text({"a", "low", "e", "r", "new", "est", "th", "aaaa"}, 20 + static_cast<int>(seed) * 8, 2000 + seed);
    ASSERT_EQ(tokenizer.encode(text), slow_encode(*tokenizer.bpe(), text)) << text;
  }
  // Pieces of several blocks, where blocks must end at places that no merge crosses.
  for (uint64_t seed = 0; seed < 2; ++seed) {
    const std::string text = random_text({"a", "low", "e", "r", "new", "est", "th", "!?"}, 2000, 3000 + seed);
    const std::string letters = random_text({"a", "low", "e", "r", "new", "est", "th"}, 5000, 4000 + seed);
    ASSERT_EQ(tokenizer.encode(text), slow_encode(*tokenizer.bpe(), text));
    ASSERT_GT(letters.size(), 9000u);
    ASSERT_EQ(tokenizer.encode(letters), slow_encode(*tokenizer.bpe(), letters));
  }
  for (int n = 1; n < 200; ++n) {
    const std::string text(n, 'a');
    ASSERT_EQ(tokenizer.encode(text), slow_encode(*tokenizer.bpe(), text)) << n;
  }
}

// Files may hold merges in an order that no training makes: a later merge brings forth a pair of an earlier rank.
TEST(Tokenizer, EqualsTheSlowReferenceForMergesInAnyOrder) {
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "a"},  {"b", "a"},   {"aa", "b"},   {"ab", "ab"}, {"a", "b"},  {"b", "b"},
      {"bb", "a"}, {"aab", "a"}, {"abab", "b"}, {"ba", "ba"}, {"a", "ba"}, {"aa", "aa"}};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::vector<std::pair<std::string, std::string>> order = merges;
    const PhiloxStream random{seed, 2};
    for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.below(i, i + 1)]);
    // A token must be made before it is named; keep those that can be.
    std::vector<std::pair<std::string, std::string>> kept;
    const auto made = [&](const std::string& token) {
      return token.size() == 1 ||
             std::any_of(merges.begin(), merges.end(), [&](const auto& m) { return m.first + m.second == token; });
    };
    for (const auto& merge : order) {
      if (made(merge.first) && made(merge.second)) kept.push_back(merge);
    }
    BpeModel model = make_bpe_model({}, {}, Pretokenizer::gpt2());
    for (const auto& [left, right] : merges) {
      if (std::find(model.tokens.begin(), model.tokens.end(), left + right) == model.tokens.end())
        model.tokens.push_back(left + right);
    }
    const auto id_of = [&](const std::string& token) {
      return static_cast<int32_t>(std::find(model.tokens.begin(), model.tokens.end(), token) - model.tokens.begin());
    };
    for (int byte = 0; byte < 256; ++byte) ASSERT_EQ(id_of(std::string(1, static_cast<char>(byte))), byte);
    for (const auto& [left, right] : kept) {
      model.merges.emplace_back(id_of(left), id_of(right));
      model.merge_ids.push_back(id_of(left + right));
    }
    const Tokenizer tokenizer(model);
    for (int length : {5, 20, 47, 48, 49, 100, 300}) {
      const std::string text = random_text({"a", "b"}, length, seed * 100 + length);
      ASSERT_EQ(tokenizer.encode(text), slow_encode(model, text)) << seed << " " << text;
    }
  }
}

// Texts of many short pieces, which are merged side by side, under vocabularies of a few merges.
TEST(Tokenizer, ManyShortPiecesHaveTheIdsThatTheMergesDefine) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<std::string> letters = {"a", "b", "c", "ab", "ca", " "};
    const BpeModel model =
        make_bpe_model(train_on({random_text(letters, 400, 900 + seed)}, static_cast<int64_t>(1 + 10 * seed)), {},
                       Pretokenizer::gpt2());
    const Tokenizer tokenizer(model);
    const std::string text = random_text(letters, 3000, seed);
    ASSERT_EQ(tokenizer.encode(text), slow_encode(model, text)) << seed;
  }
}

// LOAM_ROUND_TRIP_TEXTS: how many random texts.
TEST(Tokenizer, AnyBytesComeBack) {
  const Tokenizer tokenizer = trained({"<|end|>"});
  testing::for_each_seed("LOAM_ROUND_TRIP_TEXTS", 300, [&](uint64_t seed) {
    const int parts = static_cast<int>(seed % 51);
    const std::string text = seed % 2 ? testing::random_bytes(4 * parts, seed) : random_text(hard_parts(), parts, seed);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialPolicy::all())), text);
    EXPECT_EQ(tokenizer.count(text), static_cast<int64_t>(tokenizer.encode(text).size()));
  });
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

// Raw bytes that are not UTF-8 (fault 2 of its kind: surrogates, stray and cut sequences): no error, no byte lost, and
// the pieces beside them as without.
TEST(Tokenizer, InvalidUtf8LeavesItsNeighboursAlone) {
  const Tokenizer tokenizer = trained();
  const Ids before = tokenizer.encode("the newest"), after = tokenizer.encode(" lower");
  for (const std::string bad : {"\xED\xA0\x80", "\xFF\xFE", "\xED\xBF\xBF", "\x80", "\xC0\xAF", "\xF4\x90\x80\x80",
                                "\xE4\xBD", "\xF0\x9F\x98"}) {
    const Ids ids = tokenizer.encode("the newest" + bad + " lower");
    ASSERT_GT(ids.size(), before.size() + after.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), ids.begin()));
    EXPECT_TRUE(std::equal(after.rbegin(), after.rend(), ids.rbegin()));
    EXPECT_EQ(tokenizer.decode(ids), "the newest" + bad + " lower");
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const int32_t id : ids) text += decoder.push(id);
    EXPECT_EQ(text + decoder.finish(), replace_invalid_utf8("the newest" + bad + " lower"));
  }
}

double seconds_to_encode(const Tokenizer& tokenizer, std::string_view text) {
  const double start = testing::thread_seconds();
  const size_t count = tokenizer.encode(text).size();
  const double seconds = testing::thread_seconds() - start;
  EXPECT_GT(count, 0u);
  return seconds;
}

// The best times of the first half and of the whole, measured in turns, so that both meet the same load. Other work on
// the machine can only make a time longer: a bound that is not met yet is tried again.
double growth_of_a_doubling(const Tokenizer& tokenizer, std::string_view text, double bound) {
  double half = 1e9, whole = 1e9;
  for (int round = 0; round < 30 && (round < 3 || whole / half >= bound); ++round) {
    half = std::min(half, seconds_to_encode(tokenizer, text.substr(0, text.size() / 2)));
    whole = std::min(whole, seconds_to_encode(tokenizer, text));
  }
  return whole / half;
}

// Long enough that both halves outgrow the small caches of a core, where time is measured.
const std::vector<std::pair<std::string, std::string>>& long_pieces() {
  constexpr size_t kBytes = testing::kSanitized ? 1 << 17 : 1 << 21;
  static const std::vector<std::pair<std::string, std::string>> texts = {
      {"letter", std::string(kBytes, 'a')},
      {"sign", std::string(kBytes, '^')},
      {"spaces", std::string(kBytes, ' ')},
      {"letters", random_text({"a", "low", "e", "r", "new", "est", "th"}, kBytes / 4 * 3, 3)},
      {"apostrophes", std::string(kBytes, '\'')},
      {"bytes", std::string(kBytes, '\x80')}};
  return texts;
}

TEST(Tokenizer, LongPiecesComeBack) {
  const Tokenizer tokenizer = trained();
  for (const auto& [name, text] : long_pieces()) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name;
}

TEST(Tokenizer, LongPiecesTakeLinearTime) {
  if (testing::kSanitized) GTEST_SKIP() << "time under a sanitizer is the sanitizer's";
  const Tokenizer tokenizer = trained();
  // Freed memory stays in the process: from a certain size on the system would have to clear it anew for each call.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  for (const auto& [name, text] : long_pieces()) {
    EXPECT_LT(growth_of_a_doubling(tokenizer, text, 2.5), 2.5) << name;
  }
}

// Fault 1: the ids of one long run of a character. With tokens of 1, 2, 4, ... 8192 letters, each made of two of the
// one before, a run of n is n / 8192 of the longest and one token for each bit of the rest: what the merges define.
TEST(Tokenizer, LongRunsHaveTheIdsThatTheMergesDefine) {
  constexpr int kLevels = 13;
  std::vector<std::pair<std::string, std::string>> merges;
  for (int level = 0; level < kLevels; ++level)
    merges.emplace_back(std::string(1 << level, 'a'), std::string(1 << level, 'a'));
  const Tokenizer tokenizer(model_of(merges));
  for (const size_t count : {size_t{7}, size_t{100'000}, size_t{200'003}, size_t{1'000'000}, size_t{1'000'007}}) {
    Ids wanted(count >> kLevels, 255 + kLevels);
    for (int level = kLevels - 1; level >= 0; --level) {
      if (count >> level & 1) wanted.push_back(level == 0 ? 'a' : 255 + level);
    }
    const Ids ids = tokenizer.encode(std::string(count, 'a'));
    ASSERT_EQ(ids.size(), wanted.size()) << count;
    EXPECT_TRUE(ids == wanted) << count;
  }
}

// Fault 4: text that quotes a control token is text, whoever counts or encodes it, for every token and every way in.
TEST(Tokenizer, ControlTokensComeOnlyByOptIn) {
  const Tokenizer tokenizer = trained({"<|end|>", "<|end|>x", "<|user|>"});
  const int32_t end = tokenizer.special_id("<|end|>"), longer = tokenizer.special_id("<|end|>x"),
                user = tokenizer.special_id("<|user|>");
  EXPECT_EQ(end, tokenizer.vocab_size() - 3);
  EXPECT_EQ(tokenizer.special_id("<|none|>"), -1);
  const std::string text = "a<|end|>b<|user|><|end|>xy";
  for (const int32_t id : tokenizer.encode(text)) EXPECT_LT(id, end);
  EXPECT_EQ(tokenizer.count(text), static_cast<int64_t>(tokenizer.encode(text).size()));
  EXPECT_EQ(tokenizer.encode(text), slow_encode(*tokenizer.bpe(), text));
  EXPECT_EQ(tokenizer.encode(text, SpecialPolicy::all()), (Ids{'a', end, 'b', user, longer, 'y'}));
  EXPECT_EQ(tokenizer.encode("<|end|>x", SpecialPolicy::only({"<|end|>"})), (Ids{end, 'x'}));
  StreamEncoder stream(tokenizer, SpecialPolicy::none(), 1);
  Ids streamed;
  for (const char& c : text) stream.push({&c, 1}, streamed);
  stream.finish(streamed);
  EXPECT_EQ(streamed, tokenizer.encode(text));
  const Ids only_user = tokenizer.encode(text, SpecialPolicy::only({"<|user|>", "<|unknown|>"}));
  EXPECT_EQ(std::count(only_user.begin(), only_user.end(), user), 1);
  EXPECT_EQ(std::count(only_user.begin(), only_user.end(), end), 0);
  EXPECT_TRUE(tokenizer.is_special(end));
  EXPECT_FALSE(tokenizer.is_special('a'));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(1 << 20));
}

// The ids of Hugging Face's tokenizers 0.23.3 for the same added tokens: what must stand alone and does not is passed
// over whole, and white space that a token takes may begin the next one.
TEST(Tokenizer, AddedTokensThatLookAround) {
  struct Token {
    std::string text;
    bool single_word = false, lstrip = false, rstrip = false;
  };
  struct Case {
    std::vector<Token> tokens;
    std::string text;
    std::vector<std::string> wanted;
  };
  const std::vector<Case> cases = {
      {{{"<m>"}, {"<m>b", true}}, "x <m>bc <m>b c", {"x", " ", "<", "m", ">", "b", "c", " ", "<m>b", " ", "c"}},
      {{{"<m>", false, false, true}, {" <s>"}}, "a<m> <s>b", {"a", "<m>", " <s>", "b"}},
      {{{"<m>", false, false, true}, {"  "}}, "a<m>    b", {"a", "<m>", "  ", "  ", "b"}},
      {{{"<m>", false, false, true}, {"<s>", false, true}}, "a<m>  <s>b", {"a", "<m>", "<s>", "b"}},
      {{{"ab", true}, {"bc"}}, "abc ab bc", {"a", "b", "c", " ", "ab", " ", "bc"}},
      {{{" <s>", true}}, "o <s> <s>. <s>", {"o", " ", "<", "s", ">", " <s>", ".", " <s>"}},
      {{{"<m>", false, false, true}, {" "}}, "a<m>  ", {"a", "<m>", " ", " "}}};
  for (const Case& item : cases) {
    BpeModel model = make_bpe_model({}, {}, Pretokenizer::gpt2());
    for (const Token& token : item.tokens) {
      model.specials.push_back(
          {token.text, static_cast<int32_t>(model.tokens.size()), true, token.single_word, token.lstrip, token.rstrip});
      model.tokens.push_back(token.text);
    }
    const Tokenizer tokenizer(model);
    std::vector<std::string> found;
    for (const int32_t id : tokenizer.encode(item.text)) found.push_back(model.tokens[static_cast<size_t>(id)]);
    EXPECT_EQ(found, item.wanted) << item.text;
  }
}

TEST(Tokenizer, TrustingAllIsAllowingAll) {
  BpeModel model = make_bpe_model({}, {}, Pretokenizer::gpt2());
  for (const char* text : {"<m>", " <s>", "\n"}) {
    SpecialToken token{text, static_cast<int32_t>(model.tokens.size())};
    token.rstrip = token.text != " <s>";
    model.tokens.push_back(token.text);
    model.specials.push_back(token);
  }
  const Tokenizer tokenizer(model);
  for (const std::string& text :
       {std::string("a<m> <s>b"), std::string("<m> \n <s>\n\n x"), std::string(200000, '\n')}) {
    const std::vector<TextRange> all = {{0, text.size()}};
    const Ids wanted = tokenizer.encode(text, SpecialPolicy::all());
    EXPECT_EQ(tokenizer.encode(text, all), wanted);
    if (text[0] == '\n') {
      EXPECT_EQ(wanted.size(), text.size());  // each of them, in linear time
    }
  }
}

TEST(Tokenizer, LongestSpecialTokenWins) {
  const Tokenizer tokenizer(make_bpe_model({}, {"X", "XX", "XXY"}, Pretokenizer::gpt2()));
  const int32_t x = 256, xx = 257, xxy = 258;
  EXPECT_EQ(tokenizer.encode("XXX", SpecialPolicy::all()), (Ids{xx, x}));
  EXPECT_EQ(tokenizer.encode("XXXY", SpecialPolicy::all()), (Ids{xx, x, 'Y'}));
  EXPECT_EQ(tokenizer.encode("aXXYX", SpecialPolicy::all()), (Ids{'a', xxy, x}));
}

TEST(StreamEncoder, EqualsTheWholeTextForEveryChunking) {
  const Tokenizer tokenizer = trained({"<|end|>", "<|end|>x", "<|"});
  for (const SpecialPolicy& policy : {SpecialPolicy::none(), SpecialPolicy::all(), SpecialPolicy::only({"<|end|>x"})}) {
    // Long enough that ids come before the end.
    constexpr int kParts = testing::kSanitized ? 15000 : 60000;
    const std::string text =
        random_text(hard_parts(), 2 * kParts, 4) + std::string(200000, 'a') + random_text(hard_parts(), kParts, 5);
    const Ids wanted = tokenizer.encode(text, policy);
    for (const size_t chunk : {size_t{1}, size_t{7}, size_t{4096}, size_t{65536}, size_t{100003}, text.size()}) {
      StreamEncoder encoder(tokenizer, policy);
      Ids ids;
      size_t early = 0;
      for (size_t i = 0; i < text.size(); i += chunk) {
        encoder.push(std::string_view(text).substr(i, chunk), ids);
        if (i < text.size() / 2) early = ids.size();
      }
      encoder.finish(ids);
      ASSERT_EQ(ids, wanted) << chunk;
      if (chunk < 70000) {
        EXPECT_GT(early, 1000u);
      }
    }
    for (const size_t block : {size_t{1000}, size_t{70001}, text.size()}) {
      ASSERT_EQ(testing::encode_in_blocks(tokenizer, policy, text, block, 3), wanted) << block;
    }
  }
}

// Nothing is held but what must be: a cut is tried at every place of many short texts.
TEST(StreamEncoder, CutsAnywhere) {
  const Tokenizer tokenizer = trained({"<|end|>", "<|end|>x"});
  constexpr uint64_t kTexts = testing::kSanitized ? 60 : 300;
  for (uint64_t seed = 0; seed < kTexts; ++seed) {
    const std::string text = random_text(hard_parts(), 12, 500 + seed);
    const Ids wanted = tokenizer.encode(text, SpecialPolicy::all());
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      StreamEncoder encoder(tokenizer, SpecialPolicy::all(), 1);
      Ids ids;
      encoder.push(std::string_view(text).substr(0, cut), ids);
      encoder.push(std::string_view(text).substr(cut), ids);
      encoder.finish(ids);
      ASSERT_EQ(ids, wanted) << seed << " " << cut;
    }
    StreamEncoder by_byte(tokenizer, SpecialPolicy::all(), 1);
    Ids ids;
    for (const char& c : text) by_byte.push({&c, 1}, ids);
    if (seed % 10 == 0) {
      EXPECT_FALSE(ids.empty());
    }
    by_byte.finish(ids);
    ASSERT_EQ(ids, wanted) << seed;
  }
}

// A tokenizer with added tokens of random parts, spaces and line ends among them: control tokens and words that are
// always matched.
Tokenizer with_random_added(uint64_t seed) {
  const std::vector<std::string> parts = {" ", "\n", "a", "b", "  ", "\u00e9", ".", "\t", "low"};
  const PhiloxStream random{seed, 2};
  static const Tokenizer base = trained();
  BpeModel model = *base.bpe();
  std::set<std::string> texts;
  for (uint64_t i = 0; i < 6; ++i)
    texts.insert(random_text(parts, 2 + static_cast<int>(random.below(i, 4)), 6 * seed + i));
  for (const std::string& text : texts) {
    model.specials.push_back({text, static_cast<int32_t>(model.tokens.size()), random.below(100 + text.size(), 3) > 0});
    model.tokens.push_back(text);
  }
  return Tokenizer(std::move(model));
}

// The ids of a text do not depend on how it comes, whatever the added tokens: as a stream in chunks of any size, or in
// the parts that is_independent_cut() allows.
TEST(StreamEncoder, AnyChunkingAndAnyAddedTokensGiveTheIdsOfTheWhole) {
  size_t cuts = 0, matched = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Tokenizer tokenizer = with_random_added(seed);
    const auto& specials = tokenizer.bpe()->specials;
    std::vector<std::string> parts = {" ", "\n", "a", "b", "  ", "\u00e9", ".", "\t", "low", "'"};
    for (const SpecialToken& s : specials) parts.push_back(s.text);
    const std::string text = random_text(parts, 30, 900 + seed);
    const PhiloxStream random{seed, 3};
    for (const SpecialPolicy& policy :
         {SpecialPolicy::none(), SpecialPolicy::all(), SpecialPolicy::only({specials[0].text})}) {
      const Ids wanted = tokenizer.encode(text, policy);
      StreamEncoder encoder(tokenizer, policy, 1 + random.below(0, 20));
      Ids ids;
      for (size_t at = 0, chunk = 0; at < text.size(); at += chunk) {
        chunk = 1 + random.below(1 + at, 9);
        encoder.push(std::string_view(text).substr(at, chunk), ids);
      }
      encoder.finish(ids);
      ASSERT_EQ(ids, wanted) << seed << " " << text;
    }
    const Ids whole = tokenizer.encode(text);
    for (const int32_t id : whole) matched += id >= specials[0].id;
    for (size_t at = 1; at < text.size(); ++at) {
      if (!tokenizer.is_independent_cut(text, at)) continue;
      Ids both = tokenizer.encode(text.substr(0, at));
      const Ids rest = tokenizer.encode(text.substr(at));
      both.insert(both.end(), rest.begin(), rest.end());
      ASSERT_EQ(both, whole) << seed << " " << at << " " << text;
      ++cuts;
    }
  }
  EXPECT_GT(cuts, 100u);
  EXPECT_GT(matched, 300u);
}

// Flags that look at what is beside a token, in texts of several parts for several threads.
TEST(StreamEncoder, ThreadsKeepTokensThatLookAround) {
  constexpr int kSeeds = testing::kSanitized ? 8 : 40;
  const std::vector<std::string> tokens = {" <s>", "<m>", "<m>b", "\n<e>", "<e> ", "low", " a"};
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const PhiloxStream random{seed, 4};
    BpeModel model = *trained().bpe();
    if (seed % 2) model.normalizer = Normalizer({normal::Lowercase{}});
    for (uint64_t i = 0; i < tokens.size(); ++i) {
      SpecialToken token{tokens[i], static_cast<int32_t>(model.tokens.size()), random.below(4 * i, 2) > 0};
      token.single_word = random.below(4 * i + 1, 2) > 0;
      token.lstrip = random.below(4 * i + 2, 3) == 0;
      token.rstrip = random.below(4 * i + 3, 3) == 0;
      token.normalized = seed % 2 && i % 3 == 0;
      model.tokens.push_back(token.text);
      model.specials.push_back(token);
    }
    const Tokenizer tokenizer(std::move(model));
    std::vector<std::string> parts = {" ", "\n", "a", "b", "  ", ".", "\t", "low", "hello", "\u00e9"};
    parts.insert(parts.end(), tokens.begin(), tokens.end());
    const std::string text = random_text(parts, 40000, 700 + seed);
    for (const SpecialPolicy& policy : {SpecialPolicy::none(), SpecialPolicy::all()}) {
      const Ids wanted = tokenizer.encode(text, policy);
      ASSERT_EQ(testing::encode_in_blocks(tokenizer, policy, text, text.size(), 3), wanted) << seed;
      ASSERT_EQ(testing::encode_in_blocks(tokenizer, policy, text, 50001, 2), wanted) << seed;
    }
  }
}

// Most of a text is encoded in parts before its end is known, and the other work is done once.
TEST(StreamEncoder, EncodesInParts) {
  const Tokenizer tokenizer = trained();
  const std::string text = random_text({"low ", "lower ", "newest\n", "the "}, 50000, 1);
  StreamEncoder encoder(tokenizer, SpecialPolicy::none(), 1, 2);
  int parts = 0, others = 0;
  const IdSink sink = [&](std::span<const int32_t> ids) { parts += !ids.empty(); };
  EXPECT_EQ(encoder.encode_front("", false, sink, [] {}), 0u);
  EXPECT_GT(encoder.encode_front(text, false, sink, [&] { ++others; }), text.size() * 9 / 10);
  EXPECT_GT(parts, 4);
  EXPECT_EQ(others, 1);
}

// Of several errors that of the earliest place, behind the ids of the parts before it.
TEST(StreamEncoder, TheEarliestErrorIsTold) {
  UnigramModel model;  // without an unknown token
  model.tokens = {"a", " ", "b"};
  model.scores = {-1, -1, -1};
  model.unknown_id = model.first_byte_id = -1;
  model.space = {};
  const Tokenizer tokenizer(model);
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "a ";
  text.replace(200000, 1, "x").replace(300000, 1, "y");
  for (int round = 0; round < 20; ++round) {
    StreamEncoder encoder(tokenizer, SpecialPolicy::none(), 1, 3);
    size_t ids = 0;
    const IdSink sink = [&](std::span<const int32_t> some) { ids += some.size(); };
    EXPECT_LOAM_ERROR(encoder.encode_front(text, true, sink, [] {}), ErrorCode::kInvalidArgument, "\"x\"");
    EXPECT_LE(ids, 200000u);
  }
}

// Fault 1 where a text is cut into parts: if it cannot be cut, no place is tried again and again, so that looking for
// cuts adds little to encoding, which is linear (LongPiecesTakeLinearTime). One thread, whose time can be told.
TEST(StreamEncoder, TextWithoutCutsIsNotSearchedAgain) {
  const Tokenizer tokenizer = trained();
  const std::string text(testing::kSanitized ? 1 << 20 : 4 << 20, 'a');
  const auto seconds = [](const auto& encode) {
    double best = 1e9;
    for (int round = 0; round < 4; ++round) {
      const double start = testing::thread_seconds();
      EXPECT_FALSE(encode().empty());
      best = std::min(best, testing::thread_seconds() - start);
    }
    return best;
  };
  const double whole = seconds([&] { return tokenizer.encode(text); });
  EXPECT_LT(seconds([&] { return testing::encode_in_blocks(tokenizer, SpecialPolicy::none(), text, text.size(), 1); }),
            3 * whole);
}

TEST(StreamEncoder, CanBeUsedAgainAfterFinish) {
  const Tokenizer tokenizer = trained();
  StreamEncoder encoder(tokenizer, SpecialPolicy::none());
  for (const std::string text : {"low lower", "newest"}) {
    Ids ids;
    encoder.push(text, ids);
    encoder.finish(ids);
    EXPECT_EQ(ids, tokenizer.encode(text));
  }
}

TEST(StreamDecoder, PartsJoinedEqualTheFullDecode) {
  const Tokenizer tokenizer = trained({"<|end|>"});
  const PhiloxStream random{7, 0};
  for (uint64_t round = 0; round < 200; ++round) {
    // Any ids: they may cut characters and join halves that do not fit.
    Ids ids;
    for (uint64_t i = 0; i < 60; ++i)
      ids.push_back(static_cast<int32_t>(random.below(round * 60 + i, tokenizer.vocab_size())));
    for (const bool skip : {true, false}) {
      Ids shown;
      for (const int32_t id : ids) {
        if (!skip || !tokenizer.is_special(id)) shown.push_back(id);
      }
      StreamDecoder decoder(tokenizer, skip);
      std::string text;
      for (const int32_t id : ids) {
        const std::string part = decoder.push(id);
        EXPECT_EQ(replace_invalid_utf8(part), part);
        text += part;
      }
      text += decoder.finish();
      ASSERT_EQ(text, replace_invalid_utf8(tokenizer.decode(shown)));
    }
  }
}

TEST(StreamDecoder, HoldsBackPartsOfACharacter) {
  const Tokenizer tokenizer(make_bpe_model({}, {}, Pretokenizer::gpt2()));
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x98), "");
  EXPECT_EQ(decoder.push(0x8A), "\U0001f60a");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push('b'),
            "\uFFFD"
            "b");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

// A hole in the ids is an error that changes nothing: what is held back still becomes a character.
TEST(StreamDecoder, RefusesIdsWithoutAToken) {
  BpeModel model = make_bpe_model({}, {}, Pretokenizer::gpt2());
  model.tokens.resize(300);
  model.tokens.push_back("<far>");
  model.specials.push_back({"<far>", 300});
  const Tokenizer tokenizer(std::move(model));
  for (const bool skip : {true, false}) {
    StreamDecoder decoder(tokenizer, skip);
    EXPECT_EQ(decoder.push(0xC3), "");
    EXPECT_LOAM_ERROR(decoder.push(256), ErrorCode::kInvalidArgument, "no token has the id 256");
    EXPECT_LOAM_ERROR(decoder.push(299), ErrorCode::kInvalidArgument, "no token has the id 299");
    EXPECT_LOAM_ERROR(decoder.push(301), ErrorCode::kInvalidArgument, "id 301 is not in the vocabulary of 301");
    EXPECT_LOAM_ERROR(decoder.push(-1), ErrorCode::kInvalidArgument, "id -1 is not");
    EXPECT_EQ(decoder.push(0xA9), "\u00E9");
    EXPECT_EQ(decoder.push(300), skip ? "" : "<far>");
    EXPECT_EQ(decoder.finish(), "");
  }
}

TEST(Tokenizer, IdsWithoutATokenAreRefused) {
  BpeModel model = model_of({{"a", "b"}});
  model.tokens.push_back("");
  const Tokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.token_bytes(256), "ab");
  EXPECT_LOAM_ERROR(tokenizer.decode(Ids{257}), ErrorCode::kInvalidArgument, "257");
  EXPECT_LOAM_ERROR(tokenizer.decode(Ids{258}), ErrorCode::kInvalidArgument, "258");
  EXPECT_LOAM_ERROR(tokenizer.decode(Ids{-1}), ErrorCode::kInvalidArgument, "-1");
}

TEST(Tokenizer, BrokenModelsAreRefused) {
  const auto refused = [](const std::function<void(BpeModel&)>& damage, const std::string& part) {
    BpeModel model = make_bpe_model({{'a', 'b'}, {256, 'c'}}, {"<s>"}, Pretokenizer::gpt2());
    damage(model);
    EXPECT_LOAM_ERROR(Tokenizer(model), ErrorCode::kBadFormat, part);
  };
  refused([](BpeModel& m) { m.tokens['q'] = ""; }, "0x71");
  refused([](BpeModel& m) { m.merges[1].first = 900; }, "900");
  refused([](BpeModel& m) { m.merge_ids[1] = -5; }, "-5");
  refused([](BpeModel& m) { m.tokens[257] = "abd"; }, "does not make");
  refused([](BpeModel& m) { m.merge_ids.pop_back(); }, "2 merges");
  refused([](BpeModel& m) { m.merges[1] = m.merges[0], m.merge_ids[1] = m.merge_ids[0]; }, "twice");
  refused([](BpeModel& m) { m.specials[0].id = 5000; }, "5000");
  refused([](BpeModel& m) { m.frame = begins_with(5000); }, "5000");
  EXPECT_LOAM_ERROR(make_bpe_model({{300, 1}}, {}, Pretokenizer::gpt2()), ErrorCode::kInvalidArgument, "300");
}

TEST(Tokenizer, FingerprintChangesWithAnythingThatDecidesIds) {
  const auto print = [](const std::function<void(BpeModel&)>& change) {
    BpeModel model = make_bpe_model({{'a', 'b'}, {'c', 'd'}}, {"<s>"}, Pretokenizer::gpt2());
    change(model);
    return Tokenizer(model).fingerprint();
  };
  const std::string plain = print([](BpeModel&) {});
  EXPECT_EQ(plain.size(), 32u);
  EXPECT_EQ(print([](BpeModel&) {}), plain);
  EXPECT_NE(print([](BpeModel& m) { std::swap(m.merges[0], m.merges[1]), std::swap(m.merge_ids[0], m.merge_ids[1]); }),
            plain);
  EXPECT_NE(print([](BpeModel& m) { m.specials.clear(); }), plain);
  EXPECT_NE(print([](BpeModel& m) { m.specials[0].always = true; }), plain);
  EXPECT_NE(print([](BpeModel& m) { m.tokens.push_back("x"); }), plain);
}

TEST(Tokenizer, NamedTokens) {
  const Tokenizer tokenizer(make_bpe_model({}, {"<|pad|>", "<|endoftext|>"}, Pretokenizer::gpt2()));
  EXPECT_EQ(tokenizer.end_of_text_id(), 257);
  EXPECT_EQ(tokenizer.bos_id(), -1);
  EXPECT_EQ(Tokenizer(make_bpe_model({}, {}, Pretokenizer::gpt2())).end_of_text_id(), -1);
}

}  // namespace
}  // namespace loam
