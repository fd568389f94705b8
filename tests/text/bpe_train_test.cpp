#include "loam/text/bpe_train.h"

#include <gtest/gtest.h>

#include "loam/base/interrupt.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/sanitizers.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using testing::as_bytes;
using testing::ByteMerge;
using testing::count_pieces;
using testing::random_text;
using testing::slow_train;
using testing::train_on;

BpeTrainOptions options_for(int64_t merges, int threads = 1) {
  BpeTrainOptions options;
  options.vocab_size = 256 + merges;
  options.threads = threads;
  return options;
}

// The example of Sennrich et al. as Stanford's CS336 gives it, with the course's tie rule and its twelve merges.
TEST(BpeTrain, ToyCorpusOfTheCourse) {
  BpeTrainer trainer(options_for(12));
  trainer.add_document("low", 5);
  trainer.add_document("lower", 2);
  trainer.add_document("widest", 3);
  trainer.add_document("newest", 6);
  const std::vector<ByteMerge> wanted = {{"s", "t"},   {"e", "st"},    {"o", "w"},     {"l", "ow"},
                                         {"w", "est"}, {"n", "e"},     {"ne", "west"}, {"w", "i"},
                                         {"wi", "d"},  {"wid", "est"}, {"low", "e"},   {"lowe", "r"}};
  EXPECT_EQ(as_bytes(trainer.train()), wanted);
}

struct Corpus {
  const char* name;
  std::vector<std::string> documents;
};

std::vector<Corpus> corpora() {
  const std::vector<std::string> words = {"low ",   "lower ",  "newest ", "the ",    "then ",
                                          "them, ", "there. ", "I'm ",    "you're ", "\n\n"};
  const std::vector<std::string> code = {"int ", "x",    " = ", "0",       ";\n",   "  ",     "    ", "for (", "i++",
                                         ")",    " {\n", "}\n", "return ", "std::", "vector", "<",    ">",     "// "};
  const std::vector<std::string> chinese = {"\u4f60", "\u597d", "\u4e16", "\u754c",
                                            "\u7684", "\u662f", "\u4e0d", "\u4e86"};
  const std::vector<std::string> scripts = {"caf\u00e9 ",
                                            "\u041f\u0440\u0438\u0432\u0435\u0442 ",
                                            "\u0645\u0631\u062d\u0628\u0627 ",
                                            "\u0928\u092e\u0938\u094d\u0924\u0947 ",
                                            "\uc548\ub155 ",
                                            "\U0001f60a\U0001f60a",
                                            "na\u00efve ",
                                            "123 "};
  return {{"empty", {""}},
          {"words", {random_text(words, 400, 1), random_text(words, 300, 2)}},
          {"code", {random_text(code, 600, 3)}},
          {"no spaces", {random_text(chinese, 700, 4)}},
          {"one letter", {std::string(1000, 'a'), std::string(37, 'a')}},
          {"two letters", {random_text({"a", "b"}, 1500, 5)}},
          {"scripts", {random_text(scripts, 300, 6)}},
          {"bytes", {testing::random_bytes(3000, 7)}},
          {"hard", {random_text(testing::hard_parts(), 1000, 8)}}};
}

TEST(BpeTrain, EqualsTheSlowReference) {
  for (const Corpus& corpus : corpora()) {
    const std::vector<ByteMerge> wanted = slow_train(count_pieces(corpus.documents), 150);
    EXPECT_EQ(as_bytes(train_on(corpus.documents, 150)), wanted) << corpus.name;
    EXPECT_EQ(as_bytes(train_on(corpus.documents, 150, 2)), wanted) << corpus.name << ", two threads";
    if (std::string_view(corpus.name) == "words") {
      EXPECT_GT(wanted.size(), 20u);
    }
  }
}

TEST(BpeTrain, OrderOfDocumentsAndThreadsDoNotMatter) {
  std::vector<std::string> documents;
  for (uint64_t seed = 0; seed < 60; ++seed) documents.push_back(random_text(testing::hard_parts(), 80, seed));
  const std::vector<Merge> wanted = train_on(documents, 150);
  EXPECT_EQ(wanted.size(), 150u);
  std::reverse(documents.begin(), documents.end());
  EXPECT_EQ(train_on(documents, 150), wanted);
  std::swap(documents[3], documents[41]);
  for (const int threads : {2, 3, 8}) EXPECT_EQ(train_on(documents, 150, threads), wanted);
}

// Pairs of equal count: the greatest by bytes, whatever comes first in the corpus.
TEST(BpeTrain, TiesAreResolvedByBytesNotByOrder) {
  const std::vector<Merge> one = train_on({"bbbaaaddddcccc"}, 4), other = train_on({"aaabbbccccdddd"}, 4);
  EXPECT_EQ(as_bytes(one), slow_train({{"bbbaaaddddcccc", 1}}, 4));
  EXPECT_EQ(as_bytes(other), slow_train({{"aaabbbccccdddd", 1}}, 4));
  // dd and cc are both seen three times: dd comes first in both.
  EXPECT_EQ(as_bytes(one)[0], ByteMerge("d", "d"));
  EXPECT_EQ(as_bytes(other)[0], ByteMerge("d", "d"));
  // Bytes are unsigned.
  EXPECT_EQ(as_bytes(train_on({"zz zz", "\xC3\xA9\xC3\xA9"}, 1))[0], ByteMerge("\xC3", "\xA9"));
}

TEST(BpeTrain, CountsPassThirtyTwoBits) {
  BpeTrainer trainer(options_for(2));
  trainer.add_document("ab", (int64_t{1} << 32) + 1);  // 1 in 32 bits
  trainer.add_document("cd", 5);
  EXPECT_EQ(trainer.total_bytes(), 2 * ((int64_t{1} << 32) + 1) + 10);
  EXPECT_EQ(as_bytes(trainer.train()), (std::vector<ByteMerge>{{"a", "b"}, {"c", "d"}}));
  BpeTrainer full(options_for(2));
  full.add_document("ab", int64_t{1} << 61);
  EXPECT_LOAM_ERROR(full.add_document("ab", int64_t{1} << 62), ErrorCode::kInvalidArgument, "2^63");
  EXPECT_LOAM_ERROR(full.add_document("ab", -1), ErrorCode::kInvalidArgument, "negative");
}

TEST(BpeTrain, NoPairSpansASpecialToken) {
  BpeTrainOptions options = options_for(40 + 2);
  options.special_tokens = {"<|end|>", "<|end|>x"};
  BpeTrainer trainer(options);
  const std::string text = random_text(testing::hard_parts(), 2000, 9);
  trainer.add_document(text);
  // The reference cuts the text with plain searches, the longer token first where both match.
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at; (at = text.find("<|end|>", from)) != std::string::npos;) {
    parts.push_back(text.substr(from, at - from));
    from = at + (text.compare(at, 8, "<|end|>x") == 0 ? 8 : 7);
  }
  parts.push_back(text.substr(from));
  EXPECT_GT(parts.size(), 50u);
  EXPECT_EQ(as_bytes(trainer.train()), slow_train(count_pieces(parts), 40));
}

TEST(BpeTrain, MemoryIsThatOfDistinctPieces) {
  BpeTrainer trainer(options_for(10));
  const std::string text = random_text({"low ", "lower ", "newest "}, 100000, 10);
  trainer.add_document(text);
  EXPECT_LE(trainer.distinct_pieces(), 8);
  EXPECT_EQ(trainer.total_bytes(), static_cast<int64_t>(text.size()));
}

TEST(BpeTrain, HugePiecesAreWarnedOf) {
  ::testing::internal::CaptureStderr();
  // A run of one letter is joined in pairs, and those in pairs again.
  EXPECT_EQ(as_bytes(train_on({std::string(1 << 18, 'a')}, 3)),
            (std::vector<ByteMerge>{{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("the longest piece has 262144 bytes"), std::string::npos) << log;
}

TEST(BpeTrain, HugePiecesTakeLinearTime) {
  if (testing::kSanitized) GTEST_SKIP() << "time under a sanitizer is the sanitizer's";
  const auto seconds = [](const std::string& text) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const double start = testing::thread_seconds();
      EXPECT_GT(train_on({text}, 50).size(), 10u);
      best = std::min(best, testing::thread_seconds() - start);
    }
    return best;
  };
  const std::vector<std::string> chinese = {"\u4f60", "\u597d", "\u4e16", "\u754c", "\u7684"};
  ::testing::internal::CaptureStderr();
  const double letter = seconds(std::string(250000, 'a')), letter_more = seconds(std::string(1000000, 'a'));
  const double script = seconds(random_text(chinese, 50000, 11)),
               script_more = seconds(random_text(chinese, 200000, 11));
  ::testing::internal::GetCapturedStderr();
  EXPECT_LT(letter_more / letter, 8.0);  // linear is 4, quadratic 16
  EXPECT_LT(script_more / script, 8.0);
  EXPECT_LT(letter_more + script_more, 10.0);
}

TEST(BpeTrain, APairSeenLessOftenIsNotMerged) {
  const std::vector<std::string> documents = {random_text(testing::hard_parts(), 600, 12)};
  ::testing::internal::CaptureStderr();
  for (const int64_t least : {1, 2, 3, 7}) {
    BpeTrainOptions options = options_for(5000);
    options.min_frequency = least;
    BpeTrainer trainer(options);
    trainer.add_documents({documents.begin(), documents.end()});
    const std::vector<ByteMerge> wanted = slow_train(count_pieces(documents), 5000, least);
    EXPECT_LT(wanted.size(), 5000u);
    EXPECT_EQ(as_bytes(trainer.train()), wanted) << least;
  }
  ::testing::internal::GetCapturedStderr();
}

// Every pair is as frequent as every other, all the way: the order is that of bytes alone.
TEST(BpeTrain, WhereAllCountsAreEqualTheGreatestBytesComeFirst) {
  std::string text;
  for (int c = 33; c < 127; ++c) text += fmt::format("{}{} ", static_cast<char>(c), static_cast<char>(159 - c));
  const std::vector<std::string> documents = {text, text};
  ::testing::internal::CaptureStderr();
  const std::vector<ByteMerge> wanted = slow_train(count_pieces(documents), 300);
  EXPECT_GT(wanted.size(), 100u);
  EXPECT_EQ(as_bytes(train_on(documents, 300)), wanted);
  ::testing::internal::GetCapturedStderr();
}

std::vector<ByteMerge> merges_of(const Json& list) {
  std::vector<ByteMerge> merges;
  for (const Json& merge : list.as_array()) {
    merges.emplace_back(merge.as_array()[0].as_string(), merge.as_array()[1].as_string());
  }
  return merges;
}

TEST(BpeTrain, MergesAreThoseOfHuggingFaceWhereNothingIsATie) {
  const Json vectors = testing::fixture("tokenizer_train.json");
  for (const Json& vector : vectors.at("merges").as_array()) {
    const std::vector<ByteMerge> wanted = merges_of(vector.at("merges"));
    BpeTrainOptions options = options_for(static_cast<int64_t>(wanted.size()));
    options.max_token_length = vector.at("max_token_length").as_int();
    BpeTrainer trainer(options);
    for (const Json& word : vector.at("words").as_array()) {
      trainer.add_document(word.as_array()[0].as_string(), word.as_array()[1].as_int());
    }
    EXPECT_EQ(as_bytes(trainer.train()), wanted) << options.max_token_length;
    size_t longest = 0;
    for (const auto& [left, right] : wanted) longest = std::max(longest, left.size() + right.size());
    EXPECT_TRUE(options.max_token_length == 0 || longest <= static_cast<size_t>(options.max_token_length));
  }
}

TEST(BpeTrain, TheMostFrequentCharactersAreThoseOfHuggingFace) {
  const Json vectors = testing::fixture("tokenizer_train.json");
  for (const Json& vector : vectors.at("alphabets").as_array()) {
    BpeTrainOptions options;
    options.pretokenizer = character_pretokenizer();
    BpeTrainer trainer(options);
    trainer.add_document(vector.at("text").as_string());
    std::vector<std::string> found, wanted;
    for (const PieceCount& c : trainer.most_frequent(vector.at("limit").as_int())) found.push_back(c.piece);
    for (const Json& character : vector.at("kept").as_array()) wanted.push_back(character.as_string());
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, wanted);
  }
}

TEST(BpeTrain, StopsEarlyWithoutPairs) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train_on({"ab ab cd"}, 100).size(), 1u);  // a+b; all other pairs are seen once
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("only"), std::string::npos);
}

TEST(BpeTrain, BadOptionsAreRefused) {
  BpeTrainOptions options;
  options.vocab_size = 256;
  options.special_tokens = {"<a>"};
  EXPECT_LOAM_ERROR(BpeTrainer(options), ErrorCode::kInvalidArgument, "256");
  options.vocab_size = 300;
  options.special_tokens = {"<a>", "<b>", "<a>"};
  EXPECT_LOAM_ERROR(BpeTrainer(options), ErrorCode::kInvalidArgument, "twice");
  options.special_tokens = {""};
  EXPECT_LOAM_ERROR(BpeTrainer(options), ErrorCode::kInvalidArgument, "empty");
}

TEST(BpeTrain, CanBeInterrupted) {
  BpeTrainer trainer(options_for(50));
  trainer.add_document("low lower lowest");
  request_interrupt();
  EXPECT_LOAM_ERROR(trainer.train(), ErrorCode::kInterrupted, "");
  clear_interrupt();
}

}  // namespace
}  // namespace loam
