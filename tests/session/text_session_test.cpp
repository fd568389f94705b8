#include "loam/session/text_session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "loam/base/error.h"
#include "loam/base/json.h"
#include "loam/base/utf8.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/sanitizers.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

// A model over the 256 bytes and <|endoftext|>, so that any text can come out, characters cut anywhere.
class TextSession : public ::testing::Test {
 protected:
  TextSession()
      : exec_(make_exec_resources(Device{}, 2)),
        tokenizer_(make_bpe_model({}, {"<|endoftext|>"}, Pretokenizer::gpt2())) {
    ModelConfig c;
    c.vocab_size = 257;
    c.context_length = 96;
    c.layers = 1;
    c.dim = 32;
    c.heads = 4;
    c.init_std = 0.2;
    model_ = make_model(exec_.context, derive(c), DType::f32, false);
    model_.weights->initialize(2);
  }
  TextRequest request(const std::string& prompt, double temperature) const {
    TextRequest r;
    r.prompt = prompt;
    r.max_tokens = 40;
    r.sampling = {.temperature = temperature, .seed = 4};
    return r;
  }
  ExecResources exec_;
  Tokenizer tokenizer_;
  Model model_;
};

TEST_F(TextSession, StreamedPartsJoinToTheWholeTextWhichIsTheDecodingOfTheIds) {
  std::string streamed;
  const auto results = generate_text(exec_.context, model_, tokenizer_, {request("Größe 🦙", 1.5)}, {},
                                     [&](size_t, const std::string& part) { streamed += part; });
  EXPECT_EQ(streamed, results[0].text);
  EXPECT_EQ(results[0].text, replace_invalid_utf8(tokenizer_.decode(results[0].ids)));
  EXPECT_EQ(results[0].ids.size(), results[0].logp.size());
}

TEST_F(TextSession, StopStringEndsTheTextBeforeIt) {
  const std::string free = generate_text(exec_.context, model_, tokenizer_, {request("ab", 1)}, {})[0].text;
  // Any three consecutive bytes of ordinary text serve as a stop string.
  size_t at = 6;
  while (at + 3 < free.size() &&
         (free.substr(at, 3).find('\xEF') != std::string::npos || free.find(free.substr(at, 3)) != at))
    ++at;
  ASSERT_LT(at + 3, free.size());
  TextRequest stopped = request("ab", 1);
  stopped.stops = {"never there", free.substr(at, 3)};
  const auto result = generate_text(exec_.context, model_, tokenizer_, {stopped}, {})[0];
  EXPECT_EQ(result.text, free.substr(0, at));
  EXPECT_EQ(result.reason, FinishReason::stop);
}

TEST_F(TextSession, AnEmptyPromptStartsADocumentAndTextNeverBecomesAControlToken) {
  EXPECT_EQ(prompt_ids(tokenizer_, "").size(), 1u);
  EXPECT_EQ(prompt_ids(tokenizer_, "")[0], tokenizer_.end_of_text_id());
  for (int32_t id : prompt_ids(tokenizer_, "x<|endoftext|>"))
    EXPECT_NE(id, tokenizer_.bos_id() >= 0 ? -1 : tokenizer_.end_of_text_id());
}

TEST_F(TextSession, ScoreSumsTheLogProbsAndStatesBitsAByte) {
  const TextScore score = score_text(exec_.context, model_, tokenizer_, "some text to be scored");
  double total = 0;
  for (float l : score.logp) total += l;
  EXPECT_EQ(score.scored, static_cast<int64_t>(score.ids.size()) - 1);
  EXPECT_NEAR(score.total_logp, total, 1e-9);
  EXPECT_NEAR(score.perplexity(), std::exp(-total / static_cast<double>(score.scored)), 1e-9);
  // Nothing stands before the first token, here one byte of the 22: neither it nor its byte is scored.
  EXPECT_EQ(tokenizer_.token_bytes(score.ids[0]), "s");
  EXPECT_EQ(score.bytes, 21);
  EXPECT_NEAR(score.bits_per_byte(), -total / std::log(2.0) / 21, 1e-9);
}

// With a begin token in front all of the text is scored.
TEST_F(TextSession, ATokenInFrontLetsTheWholeTextCount) {
  BpeModel parts = *tokenizer_.bpe();
  parts.frame = begins_with(tokenizer_.end_of_text_id());
  const Tokenizer with_begin(std::move(parts));
  const TextScore score = score_text(exec_.context, model_, with_begin, "some text to be scored");
  EXPECT_EQ(score.ids[0], with_begin.bos_id());
  EXPECT_EQ(score.bytes, 22);
  EXPECT_EQ(score.scored, 22);
}

TEST_F(TextSession, EveryIdThatTheModelEndsRepliesWithEndsThem) {
  const std::vector<int32_t> ids = generate_text(exec_.context, model_, tokenizer_, {request("ab", 0)}, {})[0].ids;
  ASSERT_GT(ids.size(), 3u);
  const size_t first_2 = std::find(ids.begin(), ids.end(), ids[2]) - ids.begin();
  model_.eos_ids = {ids[2] == 0 ? 1 : 0, ids[2]};
  const TextResult result = generate_text(exec_.context, model_, tokenizer_, {request("ab", 0)}, {})[0];
  EXPECT_EQ(result.reason, FinishReason::stop);
  EXPECT_LE(result.ids.size(), first_2);
}

// The embedding has more rows than the tokenizer has tokens, as a vocabulary rounded up to a multiple of 64 does.
TEST_F(TextSession, RowsWithoutATokenAreNeverDrawn) {
  ModelConfig c = model_.config();
  c.vocab_size = 4096;  // a draw among all rows would be a token once in sixteen times
  const Model padded = make_model(exec_.context, c, DType::f32, false);
  padded.weights->initialize(3);
  for (const double temperature : {0.0, 1.0}) {
    const TextResult result = generate_text(exec_.context, padded, tokenizer_, {request("ab", temperature)}, {})[0];
    for (const int32_t id : result.ids) EXPECT_LT(id, tokenizer_.vocab_size());
    // They count for the log-probabilities all the same, as when the text is scored.
    std::vector<int32_t> ids = result.prompt_ids;
    ids.insert(ids.end(), result.ids.begin(), result.ids.end());
    const std::vector<float> scored = score_tokens(exec_.context, padded, ids);
    for (size_t i = 0; i < result.ids.size(); ++i) {
      EXPECT_NEAR(result.logp[i], scored[result.prompt_ids.size() + i], 1e-4) << i;
    }
  }
}

// Ids between the vocabulary and an added token far behind it.
TEST_F(TextSession, GapsInTheIdsAreNeverDrawn) {
  BpeModel bpe = make_bpe_model({}, {}, Pretokenizer::gpt2());
  bpe.tokens.resize(4000);
  bpe.tokens.push_back("<far>");
  bpe.specials.push_back({"<far>", 4000});
  const Tokenizer tokenizer(std::move(bpe));
  ModelConfig c = model_.config();
  c.vocab_size = 4096;
  const Model model = make_model(exec_.context, c, DType::f32, false);
  model.weights->initialize(3);
  const TextResult result = generate_text(exec_.context, model, tokenizer, {request("ab", 1)}, {})[0];
  EXPECT_EQ(result.ids.size(), 40u);
  for (const int32_t id : result.ids) EXPECT_TRUE(id < 256 || id == 4000) << id;
  EXPECT_NE(result.reason, FinishReason::cancelled);
}

TEST_F(TextSession, ScoringTellsItsProgress) {
  int64_t heard = 0;
  const TextScore score = score_text(exec_.context, model_, tokenizer_, std::string(300, 'a'), 0, 0,
                                     [&](int64_t tokens) { heard += tokens; });
  EXPECT_EQ(heard, score.scored);
}

// stories260K, a trained model of 260 thousand parameters.
class Stories : public ::testing::Test {
 protected:
  std::filesystem::path folder_ = loam::testing::shared_path("data/tinylm");
};

TEST_F(Stories, TheSameGreedyTextFromTheCacheTheWholeSequenceAndAfterConversion) {
  LOAM_NEED_SHARED(folder_);
  const ExecResources exec = make_exec_resources(Device{}, 2);
  const Model model = load_llama2c(exec.context, folder_ / "stories260K.bin", DType::f32);
  const Tokenizer tokenizer = load_llama2c_tokenizer(folder_ / "tok512.bin", 512);
  TextRequest request;
  request.prompt = "Once upon a time";
  request.max_tokens = loam::testing::kSanitized ? 80 : 200;
  request.sampling.temperature = 0;
  const auto cached = generate_text(exec.context, model, tokenizer, {request}, {})[0];
  const auto plain = generate_text(exec.context, model, tokenizer, {request}, {.use_cache = false})[0];
  EXPECT_EQ(cached.text, plain.text);
  EXPECT_NE(cached.text.find("Lily"), std::string::npos) << cached.text;

  const loam::testing::TempDir directory;
  save_tokenizer(tokenizer, directory.path());
  save_model(exec.context, model, directory.path(), {});
  const Model converted = load_model(exec.context, directory.path(), DType::f32);
  const Tokenizer reread = load_tokenizer(directory.path());
  EXPECT_EQ(generate_text(exec.context, converted, reread, {request}, {})[0].text, cached.text);
}

TEST_F(Stories, ScoresEqualTheGoldenFile) {
  LOAM_NEED_SHARED(folder_);
  const ExecResources exec = make_exec_resources(Device{}, 2);
  const Model model = load_llama2c(exec.context, folder_ / "stories260K.bin", DType::f32);
  const Tokenizer tokenizer = load_llama2c_tokenizer(folder_ / "tok512.bin", 512);
  const Json golden = Json::parse(read_file(folder_ / "golden_one.json"));
  for (const Json& item : golden.at("cases").as_array()) {
    const TextScore score = score_text(exec.context, model, tokenizer, item.at("prompt").as_string());
    const auto& ids = item.at("prompt_ids").as_array();
    const auto& logp = item.at("prompt_token_logprobs").as_array();
    ASSERT_EQ(score.ids.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(score.ids[i], ids[i].as_int());
    // The golden file prints seven decimals.
    for (size_t i = 0; i < logp.size(); ++i) EXPECT_NEAR(score.logp[i + 1], logp[i].as_double(), 2e-5);
  }
}

}  // namespace
}  // namespace loam
