#include "loam/infer/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "loam/base/error.h"
#include "loam/base/philox.h"
#include "loam/infer/score.h"
#include "tests/harness/cuda_mirror.h"

namespace loam {
namespace {

// One for each way in which attention may look back.
std::vector<ModelConfig> looking_back() {
  std::vector<ModelConfig> all(9);
  all[0].window = 5;
  all[1].window = 5, all[1].attention_spans = {AttentionSpan::window, AttentionSpan::full};
  all[2].positions = PositionKind::alibi;
  all[3].positions = PositionKind::alibi, all[3].window = 7, all[3].attention_softcap = 2;
  all[4].positions = PositionKind::sinusoidal, all[4].norm_place = NormPlace::post, all[4].norm = NormKind::layer;
  all[5].layer_positions = {PositionKind::rope, PositionKind::none}, all[5].qk_norm = QkNorm::head;
  all[6].window = 3, all[6].window_rope_theta = 50, all[6].rope_dim = 4, all[6].qk_norm = QkNorm::full;
  all[7].block = BlockForm::parallel_one_norm, all[7].positions = PositionKind::learned, all[7].logit_softcap = 5;
  all[8].norm_place = NormPlace::sandwich, all[8].rope_scaling.kind = RopeScalingKind::yarn;
  all[8].rope_scaling.factor = 4, all[8].logit_scale = 2, all[8].residual_scale = 0.5, all[8].embedding_scale = 3;
  for (ModelConfig& c : all) {
    c.vocab_size = 61, c.context_length = 48, c.layers = 2, c.dim = 32, c.heads = 4, c.kv_heads = 2, c.init_std = 0.3;
    c = derive(c);
  }
  return all;
}

ModelConfig tiny_config() {
  ModelConfig c;
  c.vocab_size = 61;
  c.context_length = 48;
  c.layers = 2;
  c.dim = 32;
  c.heads = 4;
  c.kv_heads = 2;
  c.init_std = 0.3;  // large, so that logits are far apart and greedy choices are clear
  return derive(c);
}

class Generation : public ::testing::Test {
 protected:
  Generation()
      : exec_(testing::test_resources(2)), model_(make_model(exec_.context, tiny_config(), DType::f32, false)) {
    model_.weights->initialize(5);
  }

  GenerateRequest request(int64_t length, int64_t max_tokens, uint64_t which) const {
    GenerateRequest r;
    for (int64_t i = 0; i < length; ++i)
      r.prompt.push_back(static_cast<int32_t>(PhiloxStream{9, which}.below(static_cast<uint64_t>(i), 61)));
    r.max_tokens = max_tokens;
    r.sampling.temperature = 0;
    r.stream = which;
    return r;
  }

  // Logits [T,V] of a whole sequence, in one pass.
  Tensor logits(const std::vector<int32_t>& ids) const {
    const Context ctx(exec_.context);
    const int64_t T = static_cast<int64_t>(ids.size());
    std::vector<int32_t> positions(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) positions[i] = static_cast<int32_t>(i);
    FullSequence sequence(Tensor::from<int32_t>(*ctx.arena, {1, T}, positions), {});
    const Tensor hidden =
        model_.transformer->hidden(ctx, Tensor::from<int32_t>(*ctx.arena, {1, T}, ids), sequence).value;
    return model_.transformer->logits(ctx, hidden.reshape({T, hidden.dim(-1)}));
  }

  double log_prob(const Tensor& all, int64_t row, int32_t token) const {
    const auto values =
        all.span<float>().subspan(static_cast<size_t>(row * all.dim(1)), static_cast<size_t>(all.dim(1)));
    double sum = 0;
    for (float l : values) sum += std::exp(double{l});
    return values[static_cast<size_t>(token)] - std::log(sum);
  }

  ExecResources exec_;
  Model model_;
};

TEST_F(Generation, CachedGreedyEqualsTheWholeSequenceComputedAgain) {
  for (int64_t length : {1, 2, 7, 33}) {
    const std::vector<GenerateRequest> requests = {request(length, 14, static_cast<uint64_t>(length))};
    const auto cached = generate(exec_.context, model_, requests, {});
    const auto plain = generate(exec_.context, model_, requests, {.use_cache = false});
    EXPECT_EQ(cached[0].tokens, plain[0].tokens);
    ASSERT_EQ(cached[0].tokens.size(), 14u);
    // Independently: every token is the arg-max of the logits before it, with that log-probability.
    std::vector<int32_t> ids = requests[0].prompt;
    ids.insert(ids.end(), cached[0].tokens.begin(), cached[0].tokens.end());
    const Tensor all = logits(ids);
    for (size_t i = 0; i < cached[0].tokens.size(); ++i) {
      const int64_t row = length - 1 + static_cast<int64_t>(i);
      const auto values = all.span<float>().subspan(static_cast<size_t>(row * 61), 61);
      EXPECT_EQ(cached[0].tokens[i], std::max_element(values.begin(), values.end()) - values.begin());
      EXPECT_NEAR(cached[0].logp[i], log_prob(all, row, cached[0].tokens[i]), 1e-4);
    }
  }
}

TEST_F(Generation, BatchMatesAndTheirOrderChangeNothing) {
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 9; ++i) {
    requests.push_back(request(1 + static_cast<int64_t>(5 * i % 13), 3 + static_cast<int64_t>(i), i));
    requests.back().sampling = {.temperature = i % 2 ? 1.0 : 0.0, .seed = 11};
  }
  const auto together = generate(exec_.context, model_, requests, {.batch = 4});
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = generate(exec_.context, model_, {requests[i]}, {.batch = 1});
    EXPECT_EQ(together[i].tokens, alone[0].tokens) << i;
    EXPECT_EQ(together[i].reason, FinishReason::length);
    EXPECT_EQ(static_cast<int64_t>(together[i].tokens.size()), requests[i].max_tokens);
  }
}

TEST_F(Generation, EveryWayOfLookingBackIsRemembered) {
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 5; ++i) requests.push_back(request(1 + static_cast<int64_t>(7 * i), 12, i));
  for (const ModelConfig& config : looking_back()) {
    SCOPED_TRACE(config_to_json(config).dump());
    model_ = make_model(exec_.context, config, DType::f32, false);
    model_.weights->initialize(6);
    const auto cached = generate(exec_.context, model_, requests, {.batch = 3});  // rows of different lengths
    const auto plain = generate(exec_.context, model_, requests, {.use_cache = false});
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(cached[i].tokens, plain[i].tokens) << i;
      for (size_t t = 0; t < cached[i].logp.size(); ++t) EXPECT_NEAR(cached[i].logp[t], plain[i].logp[t], 1e-4);
    }
  }
}

// At the level `exact` a row does not feel the rows beside it, whatever their lengths.
TEST_F(Generation, ExactRowsAreTheSameInAnyBatch) {
  exec_ = testing::test_resources(2, Numerics::exact);
  std::vector<GenerateRequest> requests{request(3, 10, 1), request(29, 10, 2)};
  for (const ModelConfig& config : looking_back()) {
    SCOPED_TRACE(config_to_json(config).dump());
    model_ = make_model(exec_.context, config, DType::f32, false);
    model_.weights->initialize(6);
    const auto together = generate(exec_.context, model_, requests, {.batch = 2});
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto alone = generate(exec_.context, model_, {requests[i]}, {.batch = 1});
      EXPECT_EQ(together[i].tokens, alone[0].tokens);
      EXPECT_EQ(together[i].logp, alone[0].logp);
    }
  }
}

TEST_F(Generation, StopIdsCallbackAndContextEndAReply) {
  const auto free = generate(exec_.context, model_, {request(5, 20, 1)}, {})[0];
  GenerateRequest stopped = request(5, 20, 1);
  stopped.stop_ids = {free.tokens[4]};
  size_t first = 0;
  while (free.tokens[first] != free.tokens[4]) ++first;
  const auto result = generate(exec_.context, model_, {stopped}, {})[0];
  EXPECT_EQ(result.reason, FinishReason::stop);
  EXPECT_EQ(result.tokens,
            std::vector<int32_t>(free.tokens.begin(), free.tokens.begin() + static_cast<std::ptrdiff_t>(first)));

  int seen = 0;
  const auto called =
      generate(exec_.context, model_, {request(5, 20, 1)}, {}, [&](size_t, int32_t, float) { return ++seen < 3; })[0];
  EXPECT_EQ(called.reason, FinishReason::stop);
  EXPECT_EQ(called.tokens.size(), 3u);

  const auto full = generate(exec_.context, model_, {request(40, 1000, 2)}, {})[0];
  EXPECT_EQ(full.reason, FinishReason::length);
  EXPECT_EQ(full.tokens.size(), 8u);  // 48 - 40
}

TEST_F(Generation, BadRequestsAreErrorsBeforeAnythingRuns) {
  const auto expect_error = [&](GenerateRequest bad) {
    EXPECT_THROW(generate(exec_.context, model_, {request(3, 3, 0), bad}, {}), Error);
  };
  GenerateRequest bad = request(3, 3, 0);
  bad.prompt.clear();
  expect_error(bad);
  bad = request(3, 3, 0);
  bad.prompt[1] = 61;
  expect_error(bad);
  bad.prompt[1] = -1;
  expect_error(bad);
  expect_error(request(48, 1, 0));
  expect_error(request(3, 0, 0));
  bad = request(3, 3, 0);
  bad.sampling.temperature = NAN;
  expect_error(bad);
  EXPECT_TRUE(generate(exec_.context, model_, {}, {}).empty());
}

TEST_F(Generation, EveryTokenIsScoredOnceWithTheLogitsBeforeIt) {
  const std::vector<int32_t> ids = request(20, 1, 3).prompt;
  const Tensor all = logits(ids);
  const auto whole = score_tokens(exec_.context, model_, ids);
  EXPECT_EQ(whole[0], 0.0f);
  for (size_t i = 1; i < ids.size(); ++i)
    EXPECT_NEAR(whole[i], log_prob(all, static_cast<int64_t>(i) - 1, ids[i]), 1e-4) << i;

  // Window 10, stride 5: token i is scored in the first window that reaches it, by the definition of the header.
  const auto strided = score_tokens(exec_.context, model_, ids, 10, 5);
  for (int64_t i = 1; i < 20; ++i) {
    const int64_t end = i < 10 ? 10 : std::min<int64_t>(20, 10 + (i - 10) / 5 * 5 + 5);
    const int64_t begin = std::max<int64_t>(0, end - 10);
    const std::vector<int32_t> window(ids.begin() + begin, ids.begin() + end);
    EXPECT_NEAR(strided[static_cast<size_t>(i)], log_prob(logits(window), i - begin - 1, ids[static_cast<size_t>(i)]),
                1e-4)
        << i;
  }
  EXPECT_TRUE(score_tokens(exec_.context, model_, std::vector<int32_t>{}).empty());
  EXPECT_EQ(score_tokens(exec_.context, model_, std::vector<int32_t>{3}), std::vector<float>{0.0f});
  EXPECT_THROW(score_tokens(exec_.context, model_, ids, 10, 10), Error);
  EXPECT_THROW(score_tokens(exec_.context, model_, ids, 49, 5), Error);
}

TEST_F(Generation, CacheRefusesWhatItCannotHold) {
  KvCache cache(exec_.context, *model_.transformer, DType::f32, 2, 8);
  EXPECT_THROW(cache.begin(exec_.context, 0, 1, 9), Error);
  EXPECT_THROW(cache.begin(exec_.context, 0, 3, 1), Error);
  cache.begin(exec_.context, 0, 1, 4);
  cache.end();
  EXPECT_EQ(cache.length(0), 4);
  EXPECT_THROW(cache.begin(exec_.context, 0, 2, 2), Error);  // different lengths take one token at a time
  EXPECT_THROW(cache.begin(exec_.context, 0, 1, 5), Error);
}

}  // namespace
}  // namespace loam
