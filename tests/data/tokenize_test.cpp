#include "loam/data/tokenize.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/sanitizers.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;
using Texts = std::vector<std::string>;

constexpr const char* kEnd = "<|endoftext|>";

// 256 bytes, "th" = 256, "the" = 257, end of text = 258.
Tokenizer small_tokenizer() {
  return Tokenizer(make_bpe_model({{'t', 'h'}, {256, 'e'}}, {kEnd}, Pretokenizer::gpt2()));
}

std::string json_lines(const Texts& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += Json(Json::Object{{"text", text}}).dump() + "\n";
  return lines;
}

Texts random_texts(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const char* words[] = {"the", " then", " x", "\n", " Grüße", " 12", "  ", "a"};
  Texts texts(count);
  for (std::string& text : texts) {
    const size_t length = 1 + random() % 60;
    for (size_t i = 0; i < length; ++i) text += words[random() % std::size(words)];
  }
  return texts;
}

// The texts of a set's documents, each of which must end with the end of text and hold it nowhere else.
Texts texts_of(const Path& directory, const Tokenizer& tokenizer) {
  const TokenSet set(directory);
  set.verify();
  Texts texts;
  for (int64_t d = 0; d < set.info().documents; ++d) {
    const int64_t begin = set.document_begin(d);
    std::vector<int32_t> ids(static_cast<size_t>(set.document_begin(d + 1) - begin));
    set.read(begin, ids);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.end_of_text_id()), 1);
    EXPECT_EQ(ids.back(), tokenizer.end_of_text_id());
    ids.pop_back();
    texts.push_back(tokenizer.decode(ids));
  }
  return texts;
}

// All files below a directory with their contents.
std::map<std::string, std::string> tree(const Path& root) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) files[fs::relative(entry.path(), root)] = read_file(entry.path());
  }
  return files;
}

class Tokenize : public ::testing::Test {
 protected:
  void SetUp() override {
    level_ = log_level();
    set_log_level(LogLevel::kOff);
  }
  void TearDown() override {
    set_log_level(level_);
    clear_interrupt();
  }
  Path file(const std::string& name, const std::string& bytes) {
    write_file_atomic(directory_ / name, bytes);
    return directory_ / name;
  }
  TokenizeResult run(const Path& input, const std::string& out, double val_fraction = 0, int threads = 1) {
    TokenizeOptions options;
    options.inputs = {input};
    options.val_fraction = val_fraction;
    options.threads = threads;
    return tokenize_documents(tokenizer_, options, directory_ / out);
  }
  Texts train(const std::string& out) { return texts_of(directory_ / out / "train", tokenizer_); }
  Texts val(const std::string& out) { return texts_of(directory_ / out / "val", tokenizer_); }

  TempDir directory_;
  Tokenizer tokenizer_ = small_tokenizer();
  LogLevel level_;
};

TEST_F(Tokenize, IdsByHand) {
  const TokenizeResult result = run(file("d.jsonl", json_lines({"the cat", "", "ath"})), "out");
  const TokenSet set(directory_ / "out" / "train");
  std::vector<int32_t> ids(static_cast<size_t>(set.tokens()));
  set.read(0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{257, ' ', 'c', 'a', 't', 258, 'a', 256, 258}));
  EXPECT_EQ(set.info().documents, 2);  // the empty one is left out
  EXPECT_EQ(set.info().text_bytes, 10);
  EXPECT_EQ(set.info().vocab_size, 259);
  EXPECT_EQ(set.info().end_of_text, 258);
  EXPECT_EQ(set.info().tokenizer_fingerprint, tokenizer_.fingerprint());
  EXPECT_EQ(result.train.tokens, 9);
  EXPECT_EQ(result.val.tokens, 0);
  EXPECT_FALSE(fs::exists(directory_ / "out" / "val"));
  EXPECT_EQ(load_tokenizer(directory_ / "out").fingerprint(), tokenizer_.fingerprint());
}

// Where the tokenizer puts the end of text in front of every text, it stands between documents once.
TEST_F(Tokenize, DocumentsBeginWithTheTokenThatBeginsTexts) {
  BpeModel model = make_bpe_model({{'t', 'h'}, {256, 'e'}}, {kEnd}, Pretokenizer::gpt2());
  model.frame = begins_with(258);
  tokenizer_ = Tokenizer(std::move(model));
  run(file("d.jsonl", json_lines({"the cat", "ath"})), "out");
  const TokenSet set(directory_ / "out" / "train");
  std::vector<int32_t> ids(static_cast<size_t>(set.tokens()));
  set.read(0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{258, 257, ' ', 'c', 'a', 't', 258, 'a', 256}));
  EXPECT_EQ(set.document_begin(1), 6);
}

TEST_F(Tokenize, SpecialTokensInTheTextAreText) {
  const Texts texts = {"a<|endoftext|>b", kEnd};
  run(file("d.jsonl", json_lines(texts)), "out");
  EXPECT_EQ(train("out"), texts);  // checks that the control id stands at the end only
}

TEST_F(Tokenize, BadLinesAreCounted) {
  const TokenizeResult result = run(file("d.jsonl", "{\"text\":\"a\"}\nbad\n"), "out");
  EXPECT_EQ(result.bad_lines, 1);
  EXPECT_EQ(result.train.documents, 1);
}

TEST_F(Tokenize, ByteEqualForAnyNumberOfThreads) {
  Texts texts = random_texts(3000, 1);
  // A document of many parts: 3 MB, and one without any place to cut.
  texts.insert(texts.begin() + 100, "");
  for (const std::string& text : random_texts(15'000, 2)) texts[100] += text;
  texts.insert(texts.begin() + 2000, std::string(1 << 20, 't'));
  const Path input = file("d.jsonl", json_lines(texts));
  run(input, "one", 0.1, 1);
  run(input, "two", 0.1, 2);
  run(input, "five", 0.1, 5);
  const auto one = tree(directory_ / "one");
  EXPECT_EQ(one.size(), 5u);  // two indexes, two shards, the tokenizer
  EXPECT_TRUE(one == tree(directory_ / "two"));
  EXPECT_TRUE(one == tree(directory_ / "five"));

  // Nothing lost, nothing reordered; and the parts of the long one have the ids of the whole.
  const Texts trained = train("one"), validated = val("one");
  size_t t = 0, v = 0;
  for (const std::string& text : texts) {
    if (t < trained.size() && trained[t] == text) {
      ++t;
    } else {
      ASSERT_LT(v, validated.size());
      ASSERT_TRUE(validated[v++] == text);
    }
  }
  EXPECT_EQ(t + v, texts.size());
  const bool in_train = std::find(trained.begin(), trained.end(), texts[100]) != trained.end();
  const Texts& part = in_train ? trained : validated;
  const TokenSet set(directory_ / "one" / (in_train ? "train" : "val"));
  const int64_t d = std::find(part.begin(), part.end(), texts[100]) - part.begin();
  std::vector<int32_t> ids(static_cast<size_t>(set.document_begin(d + 1) - set.document_begin(d)));
  set.read(set.document_begin(d), ids);
  ids.pop_back();
  EXPECT_TRUE(ids == tokenizer_.encode(texts[100]));
}

// A long document is encoded in parts, which never cut an added token, whatever white space is in it.
TEST_F(Tokenize, PartsOfALongDocumentKeepAddedTokensWhole) {
  BpeModel model = *tokenizer_.bpe();
  for (const char* text : {"the end\nof it", "a b"}) {
    model.specials.push_back({text, static_cast<int32_t>(model.tokens.size()), true});
    model.tokens.emplace_back(text);
  }
  tokenizer_ = Tokenizer(std::move(model));
  std::string text;
  while (text.size() < 1'500'000) text += "the end\nof ita b";
  text += "x y";
  run(file("d.txt", text), "out", 0, 2);
  const TokenSet set(directory_ / "out" / "train");
  std::vector<int32_t> ids(static_cast<size_t>(set.tokens()));
  set.read(0, ids);
  ids.pop_back();
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 259), static_cast<int64_t>(text.size() / 16));
  EXPECT_TRUE(ids == tokenizer_.encode(text));
}

TEST_F(Tokenize, TheSplitFollowsTheTextNotTheOrder) {
  Texts texts = random_texts(4000, 3);
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const TokenizeResult result = run(file("a.jsonl", json_lines(texts)), "a", 0.1);
  std::shuffle(texts.begin(), texts.end(), std::mt19937(4));
  run(file("b.jsonl", json_lines(texts)), "b", 0.1);
  const Texts a = val("a"), b = val("b"), t = train("a");
  EXPECT_EQ(std::set<std::string>(a.begin(), a.end()), std::set<std::string>(b.begin(), b.end()));
  EXPECT_EQ(a.size() + t.size(), texts.size());
  // Binomial: six standard deviations.
  const double n = static_cast<double>(texts.size());
  EXPECT_NEAR(static_cast<double>(a.size()), 0.1 * n, 6 * std::sqrt(0.1 * 0.9 * n));
  int64_t bytes = 0;
  for (const std::string& text : a) bytes += static_cast<int64_t>(text.size());
  EXPECT_EQ(result.val.text_bytes, bytes);
}

// With a share this small no document is chosen, with one this large all are: then the one of lowest hash moves.
TEST_F(Tokenize, BothPartsHaveADocument) {
  const Texts texts = random_texts(20, 5);
  const Path input = file("d.jsonl", json_lines(texts));
  std::string moved;
  for (const double fraction : {1e-15, 1 - 1e-15}) {
    const TokenizeResult result = run(input, "out", fraction);
    const Texts many = fraction < 0.5 ? train("out") : val("out"), one = fraction < 0.5 ? val("out") : train("out");
    ASSERT_EQ(one.size(), 1u);
    if (moved.empty()) moved = one[0];
    EXPECT_EQ(one[0], moved);
    Texts rest = texts;
    rest.erase(std::find(rest.begin(), rest.end(), moved));
    EXPECT_EQ(many, rest);
    int64_t bytes = 0;
    for (const std::string& text : texts) bytes += static_cast<int64_t>(text.size());
    EXPECT_EQ(result.train.text_bytes + result.val.text_bytes, bytes);
    EXPECT_EQ((fraction < 0.5 ? result.val : result.train).text_bytes, static_cast<int64_t>(moved.size()));
    EXPECT_EQ(tree(directory_ / "out").size(), 5u);
    fs::remove_all(directory_ / "out");
  }
  // The lowest hash is what a small share takes first.
  int64_t more = 0;
  for (double fraction = 1e-4; more == 0; fraction *= 1.2) {
    const Texts chosen = (run(input, "out", fraction), val("out"));
    EXPECT_NE(std::find(chosen.begin(), chosen.end(), moved), chosen.end());
    more = static_cast<int64_t>(chosen.size()) - 1;
    fs::remove_all(directory_ / "out");
  }
}

TEST_F(Tokenize, ASingleDocumentIsCutAtALineEnd) {
  std::string text;
  for (int line = 0; line < 100; ++line) text += "line number " + std::to_string(line + 100) + "\n";  // 16 bytes each
  const TokenizeResult result = run(file("d.txt", text), "out", 0.097);
  EXPECT_EQ(train("out"), Texts{text.substr(0, 90 * 16)});  // 90.3 lines wanted
  EXPECT_EQ(val("out"), Texts{text.substr(90 * 16)});
  EXPECT_EQ(result.train.text_bytes, 90 * 16);
  EXPECT_EQ(result.val.text_bytes, 10 * 16);
  // One line: at a character. Ten characters of two bytes, a quarter wanted: 15 bytes is inside one.
  run(file("e.txt", "ééééééééée"), "one-line", 0.25);
  EXPECT_EQ(train("one-line"), Texts{"ééééééé"});
  EXPECT_EQ(val("one-line"), Texts{"éée"});
  EXPECT_LOAM_ERROR(run(file("f.txt", "x"), "f", 0.5), ErrorCode::kInvalidArgument, "cannot be cut");
  EXPECT_FALSE(fs::exists(directory_ / "f"));
}

TEST_F(Tokenize, LimitCountsDocuments) {
  TokenizeOptions options;
  options.inputs = {file("d.jsonl", json_lines({"a", "", "b", "c"}))};
  options.limit = 2;
  tokenize_documents(tokenizer_, options, directory_ / "out");
  EXPECT_EQ(train("out"), (Texts{"a", "b"}));
}

TEST_F(Tokenize, ErrorsLeaveNothingBehind) {
  const Path good = file("d.jsonl", json_lines({"a"})), bad = file("bad.jsonl", "bad\n"), empty = file("e.jsonl", "");
  EXPECT_LOAM_ERROR(run(bad, "out"), ErrorCode::kBadFormat, "bad.jsonl");
  EXPECT_LOAM_ERROR(run(empty, "out"), ErrorCode::kInvalidArgument, "no documents");
  EXPECT_LOAM_ERROR(run(directory_ / "absent", "out"), ErrorCode::kNotFound, "absent");
  EXPECT_LOAM_ERROR(run(good, "out", 1.0), ErrorCode::kInvalidArgument, "fraction of 1");
  EXPECT_LOAM_ERROR(run(good, "out", std::nan("")), ErrorCode::kInvalidArgument, "fraction");
  EXPECT_LOAM_ERROR(run(good, "out", 0, 0), ErrorCode::kInvalidArgument, "0 threads");
  tokenizer_ = Tokenizer(make_bpe_model({}, {}, Pretokenizer::gpt2()));
  EXPECT_LOAM_ERROR(run(good, "out"), ErrorCode::kInvalidArgument, "no end-of-text token");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()), 3);
}

TEST_F(Tokenize, OverwritesOnlyByForce) {
  run(file("a.jsonl", json_lines({"a"})), "out");
  TokenizeOptions options;
  options.inputs = {file("b.jsonl", json_lines({"b"}))};
  EXPECT_LOAM_ERROR(tokenize_documents(tokenizer_, options, directory_ / "out"), ErrorCode::kAlreadyExists, "out");
  EXPECT_EQ(train("out"), Texts{"a"});
  options.force = true;
  tokenize_documents(tokenizer_, options, directory_ / "out");
  EXPECT_EQ(train("out"), Texts{"b"});
}

TEST_F(Tokenize, ItsOwnOutputIsNoInput) {
  file("a.txt", "the cat");
  const auto call = [&] {
    TokenizeOptions options;
    options.inputs = expand_inputs({directory_.path().string()});
    options.force = true;
    tokenize_documents(tokenizer_, options, directory_ / "sub" / ".." / "out");
  };
  fs::create_directory(directory_ / "sub");
  for (int i = 0; i < 2; ++i) {
    call();
    EXPECT_EQ(train("out"), Texts{"the cat"});
  }
  // That of another call is refused.
  fs::rename(directory_ / "out" / "train" / "shard-00000.tok", directory_ / "b.txt");
  EXPECT_LOAM_ERROR(call(), ErrorCode::kBadFormat, "b.txt: a token shard");
}

// The input never ends: only the interrupt, which comes once many batches are through, stops the work.
TEST_F(Tokenize, AnInterruptLeavesNothingBehind) {
  ::signal(SIGPIPE, SIG_IGN);
  const Path pipe = directory_ / "endless.jsonl";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread feeder([&] {
    std::ofstream out(pipe);
    const std::string lines = json_lines(random_texts(1000, 6));
    for (size_t bytes = 0; bytes < (8 << 20); bytes += lines.size()) out << lines;
    out.flush();
    request_interrupt();
    out << lines;
  });
  EXPECT_LOAM_ERROR(run(pipe, "out", 0.1, 2), ErrorCode::kInterrupted, "interrupted");
  feeder.join();
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()), 1);
}

int64_t status_kilobytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size()));
  }
  return -1;
}

// Three batches, the tokenizer's cache and the offsets of the documents do not depend on how much is behind them.
TEST_F(Tokenize, MemoryDoesNotGrowWithTheInput) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer's own memory grows";
  const std::string lines = json_lines(random_texts(1000, 7));  // about 110 kB
  int64_t peaks[2], inputs[2];                                  // in kB
  for (int large = 0; large < 2; ++large) {
    const Path input = directory_ / "d.jsonl";
    {
      std::ofstream out(input);
      for (int i = 0; i < (large ? 400 : 100); ++i) out << lines;
    }
    inputs[large] = static_cast<int64_t>(fs::file_size(input)) / 1024;
    std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
    run(input, large ? "large" : "small", 0.1, 2);
    peaks[large] = status_kilobytes("VmHWM:");
  }
  const int64_t more_input = inputs[1] - inputs[0];
  ASSERT_GT(more_input, 30'000);
  EXPECT_LT(peaks[1] - peaks[0], more_input / 3) << "for " << more_input << " kB more input";
  RecordProperty("small_kb", static_cast<int>(peaks[0]));
  RecordProperty("large_kb", static_cast<int>(peaks[1]));
}

}  // namespace
}  // namespace loam
