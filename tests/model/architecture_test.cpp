// The Transformer against the plain implementation of tests/fixtures/architecture_reference.py, in what no family has:
// every setting of ModelConfig, several at once.
#include <algorithm>
#include <filesystem>
#include <set>

#include "loam/model/transformer.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/shared.h"
#include "tests/model/model_testing.h"

namespace loam {
namespace {

using namespace loam::testing;

constexpr double kTolerance = 1e-5;  // relative in norm, f32 against f64

std::set<Path> architectures() {
  std::set<Path> all;
  for (const auto& entry : std::filesystem::directory_iterator(testing::source_path("tests/fixtures/architectures"))) {
    all.insert(entry.path());
  }
  return all;
}

// Forward and backward of a model with a scalar head; its loss is half the mean squared difference from `values`.
struct ScalarPass {
  std::vector<float> scalars;
  double loss = 0;
};
ScalarPass scalar_pass(const ExecResources& exec, const Model& model, const Batch& batch, const Tensor& values,
                       const RecomputeConfig& again = {}) {
  Tape tape;
  const Context ctx(exec.context, &tape);
  FullSequence sequence(batch.positions, batch.first_key);
  model.weights->clear_gradients();
  const Var scalars = model.transformer->scalars(ctx, model.transformer->hidden(ctx, batch.ids, sequence, again));
  ScalarPass pass{floats(scalars.value), 0};
  const auto targets = batch.targets.span<int32_t>();
  const auto count =
      static_cast<float>(std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; }));
  std::vector<float> gradient(targets.size(), 0.0f);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    const float difference = pass.scalars[i] - values.data<float>()[i];
    gradient[i] = difference / count;
    pass.loss += 0.5 * double{difference} * difference / count;
  }
  const Tensor seed = Tensor::from<float>(*exec.arena, scalars.value.shape(), gradient);
  tape.backward(ctx, {&scalars, 1}, {&seed, 1}, {});
  model.weights->finish_gradients(exec.context);
  return pass;
}

TEST(Architecture, ResultsLossAndGradientsEqualTheReference) {
  const std::set<Path> all = architectures();
  EXPECT_EQ(all.size(), 17u);
  for (const Path& directory : all) {
    SCOPED_TRACE(directory.filename().string());
    const ExecResources exec = testing::test_resources(2);
    const Model model = load_model(exec.context, directory, DType::f32, true);
    const SafetensorsFile expected(directory / "expected.safetensors");
    const Batch batch = batch_of(expected);
    const double loss = floats(expected.tensor("loss"))[0];
    if (model.config().head == HeadKind::scalar) {
      const ScalarPass pass = scalar_pass(exec, model, batch, expected.tensor("values"));
      EXPECT_LE(relative_error(pass.scalars, floats(expected.tensor("scalars"))), kTolerance);
      EXPECT_NEAR(pass.loss, loss, kTolerance * loss);
    } else {
      const float z_loss = expected.contains("z_loss") ? floats(expected.tensor("z_loss"))[0] : 0;
      EXPECT_LE(relative_error(logits_of(exec.context, model, batch), floats(expected.tensor("logits"))), kTolerance);
      EXPECT_NEAR(train_pass(exec.context, model, batch, z_loss), loss, kTolerance * loss);
    }
    int32_t compared = 0;
    for (const std::string& name : expected.names()) {
      if (!name.starts_with("grad.")) continue;
      const Tensor gradient = model.weights->gradient(model.weights->find(name.substr(5)).index);
      EXPECT_LE(relative_error(floats(gradient), floats(expected.tensor(name))), kTolerance) << name;
      ++compared;
    }
    EXPECT_EQ(compared, model.weights->size());
  }
}

// In every form of block: what is computed again changes no bit.
TEST(Architecture, RecomputationGivesEqualGradients) {
  for (const Path& directory : architectures()) {
    SCOPED_TRACE(directory.filename().string());
    const ExecResources exec = testing::test_resources(1);
    const Model model = load_model(exec.context, directory, DType::f32, true);
    const SafetensorsFile expected(directory / "expected.safetensors");
    const Batch batch = batch_of(expected);
    const auto pass = [&](const RecomputeConfig& again) {
      const double loss = model.config().head == HeadKind::scalar
                              ? scalar_pass(exec, model, batch, expected.tensor("values"), again).loss
                              : double{train_pass(exec.context, model, batch, 1e-3f, again)};
      std::vector<std::vector<float>> all{{static_cast<float>(loss)}};
      for (int32_t i = 0; i < model.weights->size(); ++i) all.push_back(floats(model.weights->gradient(i)));
      return all;
    };
    const auto plain = pass({});
    for (const RecomputeConfig& again : kRecomputations) EXPECT_EQ(pass(again), plain) << config_to_json(again).dump();
  }
}

}  // namespace
}  // namespace loam
