// A real trained model with known answers.
#include "loam/base/json.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"
#include "tests/model/model_testing.h"

namespace loam {
namespace {

using namespace loam::testing;

struct Golden {
  std::vector<int32_t> ids;
  std::vector<double> logprobs, last_logits;
};

Golden read_golden(const Path& path) {
  const Json json = Json::parse(read_file(path));
  const Json& one = json.at("cases").as_array().at(0);
  Golden golden;
  for (const Json& id : one.at("prompt_ids").as_array()) golden.ids.push_back(static_cast<int32_t>(id.as_int()));
  for (const Json& v : one.at("prompt_token_logprobs").as_array()) golden.logprobs.push_back(v.as_double());
  for (const Json& v : one.at("last_logits").as_array()) golden.last_logits.push_back(v.as_double());
  return golden;
}

// The file prints 6 decimals of a logit (half a unit: 5e-7) and 7 of a log-probability, computed in f32. Logits reach
// 10 in magnitude; with eps = 2^-24 and some 200 roundings on the longest path (5 layers, dot products of 64 and 172
// terms in blocks), errors of size eps * 10 add up as a random walk to sqrt(200) * 6e-7 = 8.4e-6 on either side.
constexpr double kLogitTolerance = 2 * 8.4e-6 + 5e-7;

void expect_golden(const ExecContext& exec, Arena& arena, const Model& model, const Golden& golden) {
  const std::vector<float> logits = logits_of(exec, model, one_row(arena, golden.ids));
  const size_t V = golden.last_logits.size();
  ASSERT_EQ(logits.size(), golden.ids.size() * V);
  for (size_t v = 0; v < V; ++v) {
    EXPECT_NEAR(logits[logits.size() - V + v], golden.last_logits[v], kLogitTolerance) << v;
  }
  // The library's own log-probabilities of ids[1..] given what stands before.
  const Context ctx(exec);
  const Batch batch = one_row(arena, golden.ids);
  FullSequence sequence(batch.positions, {});
  std::vector<int32_t> targets(golden.ids.begin() + 1, golden.ids.end());
  targets.push_back(-1);
  const auto scored =
      ops::linear_log_prob(ctx, model.transformer->hidden(ctx, batch.ids, sequence), model.transformer->head(),
                           Tensor::from<int32_t>(arena, {static_cast<int64_t>(targets.size())}, targets));
  ASSERT_EQ(golden.logprobs.size() + 1, targets.size());
  for (size_t t = 0; t < golden.logprobs.size(); ++t) {
    EXPECT_NEAR(scored.logp.value.data<float>()[t], golden.logprobs[t], kLogitTolerance) << t;
  }
}

TEST(Llama2cModel, LogitsAndLogProbsEqualTheGoldenFileBeforeAndAfterConversion) {
  const Path bin = shared_path("data/tinylm/stories260K.bin"), golden_path = shared_path("data/tinylm/golden_one.json");
  LOAM_NEED_SHARED(bin);
  LOAM_NEED_SHARED(golden_path);
  const Golden golden = read_golden(golden_path);
  const ExecResources exec = testing::test_resources(1);
  const Model model = load_llama2c(exec.context, bin, DType::f32);
  EXPECT_EQ(model.config().rope_pairs, RopePairs::interleaved);
  EXPECT_EQ(model.weights->parameter_count(), 260032);
  expect_golden(exec.context, *exec.arena, model, golden);

  const TempDir directory;
  save_model(exec.context, model, directory.path(), {});
  const Model converted = load_model(exec.context, directory.path(), DType::f32);
  EXPECT_EQ(converted.config().rope_pairs, RopePairs::half);
  EXPECT_EQ(converted.bos_id, 1);
  expect_golden(exec.context, *exec.arena, converted, golden);
}

TEST(Llama2cModel, ShapesThatNoKernelHasAreRefused) {
  const TempDir directory;
  // Head dim 4 is even, so a legal file, but not a multiple of 8. Sizes: dim 8, hidden 4, 1 layer, 2 heads, 2 kv heads,
  // 3 ids, length 2.
  const std::vector<int32_t> header{8, 4, 1, 2, 2, 3, 2};
  const size_t values = 3 * 8 + 8 + 4 * 64 + 8 + 3 * 32 + 8 + 2 * 2 * 2;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 28);
  bytes.resize(28 + 4 * values);
  write_file_atomic(directory / "small.bin", bytes);
  const ExecResources exec = testing::test_resources(1);
  EXPECT_LOAM_ERROR(load_llama2c(exec.context, directory / "small.bin", DType::f32), ErrorCode::kBadFormat,
                    "head_dim is 4");
}

}  // namespace
}  // namespace loam
