#include "loam/train/train_profile.h"

#include <gtest/gtest.h>

#include <set>

#include "loam/train/run_data.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

class TrainProfileTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSteps = 3;
  struct Profiled {
    testing::TempDir directory;
    ExecResources resources = testing::test_resources(1);
    TrainConfig config = testing::tiny_config();
    std::unique_ptr<TrainProfile> profile;
    Profiled() {
      testing::write_data(directory / "data");
      const auto train = std::make_shared<TokenSet>(directory / "data" / "train");
      config = config_for_data(config, train->info());
      config.data.mask_documents = false;
      profile = profile_training(resources.context, config, one_source(train, nullptr), kSteps, 1);
    }
  };
  // Once for all tests.
  TrainProfileTest() {
    static const Profiled profiled;
    resources = profiled.resources;
    config = profiled.config;
    profile = profiled.profile.get();
  }

  ExecResources resources;
  TrainConfig config;
  const TrainProfile* profile;
};

// 6 per weight of a matrix and token, as the model's own formula has them, and of attention 14 per visible key and
// element of a head's dimension: 2 products forward and 5 backward.
TEST_F(TrainProfileTest, KernelsDoTheArithmeticOfTheModel) {
  double products = 0, attention = 0;
  for (const KernelTime& kernel : profile->kernels.times()) {
    if (kernel.name == "matmul") products += kernel.flops;
    if (kernel.name.starts_with("attention")) attention += kernel.flops;
  }
  const ModelConfig& model = config.model;
  const auto T = static_cast<double>(config.data.length);
  const double tokens = static_cast<double>(kSteps * config.batch) * T;
  const double pairs = static_cast<double>(model.layers * model.heads * model.head_dim) * (T + 1) / 2;
  EXPECT_DOUBLE_EQ(attention, tokens * 14 * pairs);
  EXPECT_DOUBLE_EQ(products, tokens * (training_flops_per_token(model, config.data.length) - 12 * pairs));
}

TEST_F(TrainProfileTest, KernelsAndPhasesLieWithinTheSteps) {
  double total = 0;
  ASSERT_EQ(profile->step_seconds.size(), static_cast<size_t>(kSteps));
  for (const double seconds : profile->step_seconds) total += seconds;
  EXPECT_LE(profile->kernels.total_seconds(), 1.001 * total);
  const Json report = profile_kernels(*profile);
  double phases = 0;
  std::set<std::string> names;
  for (const auto& [name, seconds] : report.at("phases").as_object()) {
    phases += seconds.as_double();
    names.insert(name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"data", "forward", "backward", "optimizer", "read"}));
  EXPECT_LE(phases, 1.001 * total);
  EXPECT_GE(phases, profile->kernels.total_seconds());
  EXPECT_NEAR(report.at("between_seconds").as_double() + report.at("kernel_seconds").as_double(), total, 1e-9 * total);
  const std::string table = profile_table(*profile);
  for (const char* line : {"between kernels / host", "matmul", "backward", "peak of memory"})
    EXPECT_NE(table.find(line), table.npos) << line << " is not in\n" << table;
}

TEST_F(TrainProfileTest, MemoryIsThatOfTheArena) {
  const ArenaStats stats = resources.context.arena->stats();
  const Json memory = profile_memory(*profile);
  EXPECT_EQ(memory.at("peak_bytes").as_int(), stats.total_peak);
  int64_t by_kind = 0;
  for (const auto& [kind, bytes] : memory.at("peak_by_kind").as_object()) by_kind += bytes.as_int();
  EXPECT_EQ(by_kind, stats.total_peak);
  int64_t most = 0;
  for (const Json& point : memory.at("timeline").as_array()) {
    int64_t bytes = 0;
    for (size_t i = 1; i < point.as_array().size(); ++i) bytes += point.as_array()[i].as_int();
    most = std::max(most, bytes);
  }
  EXPECT_EQ(most, stats.total_peak);
  std::set<std::string> modules;
  for (const Json& tensor : memory.at("tensors").as_array()) modules.insert(tensor.at("module").as_string());
  EXPECT_TRUE(modules.contains("layers.0.mlp"));
}

TEST_F(TrainProfileTest, TraceHasEveryCallInOrderAndWithinItsPhase) {
  const Json trace = Json::parse(profile_trace(*profile).dump());
  size_t calls = 0;
  double kernel_end = 0;
  std::vector<std::pair<double, double>> phases;
  for (const Json& event : trace.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    const double begin = event.at("ts").as_double(), end = begin + event.at("dur").as_double();
    if (event.at("tid").as_int() == 1) {
      phases.emplace_back(begin, end);
      continue;
    }
    ++calls;
    EXPECT_GE(begin, kernel_end - 1e-3);
    kernel_end = end;
    EXPECT_TRUE(std::any_of(phases.begin(), phases.end(), [&](const auto& phase) {
      return begin >= phase.first - 1e-3 && end <= phase.second + 1e-3;
    })) << event.dump();
  }
  EXPECT_EQ(calls, profile->kernels.calls().size());
}

}  // namespace
}  // namespace loam
