// What a run keeps and says of itself: checkpoints, fingerprint, energy, layers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "loam/format/safetensors.h"
#include "loam/train/energy.h"
#include "tests/harness/expect_error.h"
#include "tests/train/run_testing.h"

namespace loam {
namespace {

using testing::final_state;
using testing::records_of;

class TrustTest : public testing::RunTest {
 protected:
  static std::vector<int64_t> kept(const Path& run) {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info : CheckpointStore(run / "checkpoints").list()) steps.push_back(info.step);
    return steps;
  }
  // Learned by heart soon: then the validation gets worse.
  void write_little_data() {
    std::filesystem::remove_all(directory / "data" / "train");
    testing::write_set(directory / "data" / "train", testing::documents(4, 3));
    config.steps = 120;
    config.val_every = 6;
    config.save_every = 30;
    config.optimizer.min_lr_ratio = 1;
  }
  static std::pair<int64_t, double> lowest_validation(const Path& run) {
    std::pair<int64_t, double> best{0, std::numeric_limits<double>::infinity()};
    for (const Json& val : records_of(run, "val")) {
      if (val.at("loss").as_double() < best.second) best = {val.at("step").as_int(), val.at("loss").as_double()};
    }
    return best;
  }
};

TEST_F(TrustTest, TheBestCheckpointIsKept) {
  write_little_data();
  config.keep_best = true;
  config.keep_last = 1;
  config.keep_every = 50;
  const RunOptions o = options("run");
  run(o);
  const auto [step, loss] = lowest_validation(o.out);
  ASSERT_LT(step, 120);
  const Json marker = Json::parse(read_file(o.out / "checkpoints" / "best.json"));
  EXPECT_EQ(marker.at("step").as_int(), step);
  EXPECT_EQ(marker.at("loss").as_double(), loss);
  std::vector<int64_t> expected{50, 100, 120};
  if (step != 50 && step != 100) expected.push_back(step);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(kept(o.out), expected);
}

// A kill between the line of a validation and what follows from it: the marker is old, missing or half.
TEST_F(TrustTest, TheBestIsFoundAgainAfterAKill) {
  write_little_data();
  config.keep_best = true;
  config.optimizer.schedule = ScheduleKind::constant;
  config.steps = 30;
  const RunOptions o = options("run");
  run(o);
  const Path marker = o.out / "checkpoints" / "best.json";
  config.steps = 31;
  for (const char* left : {"", "{\"step\": 6, \"lo", "{\"step\": 6, \"loss\": 0}"}) {
    write_file_atomic(marker, left);
    run(o);
    EXPECT_EQ(Json::parse(read_file(marker)).at("step").as_int(), lowest_validation(o.out).first);
    ++config.steps;
  }
  std::filesystem::remove(marker);
  run(o);
  EXPECT_EQ(Json::parse(read_file(marker)).at("loss").as_double(), lowest_validation(o.out).second);
}

TEST_F(TrustTest, AJsonOfEveryStart) {
  config.steps = 5;
  config.optimizer.schedule = ScheduleKind::constant;
  RunOptions o = options("run");
  o.version = "1.2.3";
  o.commit = "abc-dirty";
  o.command_line = {"loam", "train"};
  const RunSummary summary = run(o);
  config.steps = 8;
  EXPECT_EQ(run(o).id, summary.id);
  const Json file = Json::parse(read_file(o.out / "run.json"));
  EXPECT_EQ(file.at("id").as_string(), summary.id);
  EXPECT_EQ(summary.id.size(), 8u);
  const Json::Array& starts = file.at("starts").as_array();
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].at("step").as_int(), 0);
  EXPECT_EQ(starts[1].at("step").as_int(), 5);
  const Json& start = starts[1];
  EXPECT_EQ(start.at("version").as_string(), "1.2.3");
  EXPECT_EQ(start.at("commit").as_string(), "abc-dirty");
  EXPECT_TRUE(start.at("dirty").as_bool());
  EXPECT_EQ(start.at("threads").as_int(), 1);
  EXPECT_EQ(start.at("command").as_array().size(), 2u);
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  EXPECT_EQ(start.at("host").as_string(), host);
  EXPECT_EQ(start.at("data").at("train").as_string(), TokenSet(directory / "data" / "train").fingerprint());
  EXPECT_EQ(start.at("data").at("tokenizer").as_string(), "test");
  EXPECT_EQ(start.at("config").as_string(), hash_hex(Json::parse(read_file(o.out / "config.json")).dump()));
  EXPECT_NE(start.at("config"), starts[0].at("config"));
  std::tm parsed{};
  EXPECT_NE(::strptime(start.at("started").as_string().c_str(), "%Y-%m-%dT%H:%M:%SZ", &parsed), nullptr);
  EXPECT_LT(std::abs(std::difftime(::timegm(&parsed), ::time(nullptr))), 3600);
  EXPECT_EQ(records_of(o.out, "start")[0].at("run").as_string(), summary.id);
  EXPECT_EQ(records_of(o.out, "start")[1].at("cpu"), start.at("cpu"));
  EXPECT_NE(run(options("other")).id, summary.id);
  // A file that was lost is made again under the same id.
  std::filesystem::remove(o.out / "run.json");
  config.steps = 9;
  EXPECT_EQ(run(o).id, summary.id);
}

TEST_F(TrustTest, CostsAddUpOverResumes) {
  config.steps = 10;
  config.optimizer.schedule = ScheduleKind::constant;
  config.price.watts = 3.6e6;  // 1 kWh a second
  config.price.per_kwh = 2;
  config.price.per_hour = 3600;  // 1 a second
  const RunOptions o = options("run");
  const RunSummary first = run(o);
  EXPECT_NEAR(*first.cost.kwh, first.seconds, 0.05 * first.seconds + 0.05);
  EXPECT_NEAR(*first.cost.energy_cost, 2 * *first.cost.kwh, 1e-9);
  EXPECT_NEAR(*first.cost.machine_cost, *first.cost.kwh, 1e-9);
  config.steps = 20;
  config.price.per_hour = 0;  // what was spent stays spent
  const RunSummary second = run(o);
  EXPECT_GT(*second.cost.kwh, *first.cost.kwh * 0.9);
  EXPECT_GT(*second.cost.machine_cost, 0);
  EXPECT_LE(*second.cost.machine_cost, *first.cost.machine_cost);
  EXPECT_EQ(records_of(o.out, "train").back().find("kwh") != nullptr, true);
}

// Whoever takes the advice is through in the end.
TEST_F(TrustTest, OutOfMemorySaysWhatToDo) {
  config.batch = config.micro_batch = 64;
  config.steps = 3;
  config.model.dim = 256;  // so that a step outweighs the matrices that the machine's speed is measured with
  config.model.layers = testing::kSanitized ? 1 : 4;
  TrainConfig small = derive(config);
  small.micro_batch = 16;
  Arena::Options limited;
  limited.limit_bytes = predict_memory(resources.context, small).total() * 5 / 4;
  limited.segment_bytes = limited.limit_bytes;
  ASSERT_GT(predict_memory(resources.context, derive(config)).total(), limited.limit_bytes);
  const auto arena = Arena::create(Device{}, limited);
  ExecContext ctx = resources.context;
  ctx.arena = arena.get();
  int failures = 0;
  for (int64_t before = 65; config.micro_batch < before; ++failures) {
    before = config.micro_batch;
    std::string said;
    try {
      EXPECT_EQ(run_training(ctx, config, options(fmt::format("run-{}", failures))).steps, 3);
      break;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      said = error.what();
    }
    for (const char* part : {"asked for ", "At the peak: weights ", "the machine has ", "recompute.groups="})
      EXPECT_NE(said.find(part), std::string::npos) << said;
    const size_t at = said.find("micro_batch=");
    ASSERT_NE(at, said.npos) << said;
    config.micro_batch = std::stoll(said.substr(at + 12));
  }
  EXPECT_GE(failures, 1);
  EXPECT_GE(config.micro_batch, 2);  // a smaller step than the memory is meant for
}

class EnergyTest : public ::testing::Test {
 protected:
  void write(const std::string& zone, const std::string& name, int64_t microjoules, int64_t range = 1000'000'000) {
    const Path path = directory / "sys/class/powercap" / zone;
    std::filesystem::create_directories(path);
    std::ofstream(path / "name") << name << "\n";
    std::ofstream(path / "energy_uj") << microjoules << "\n";
    std::ofstream(path / "max_energy_range_uj") << range << "\n";
  }
  testing::TempDir directory;
};

TEST_F(EnergyTest, CountsPackagesAndMemoryAcrossWraps) {
  EXPECT_FALSE(EnergyMeter(Path(directory / "nothing")).available());
  write("intel-rapl:0", "package-0", 5'000'000);
  write("intel-rapl:0:0", "core", 1'000'000);  // in the package
  write("intel-rapl:0:1", "dram", 999'000'000);
  write("intel-rapl:1", "psys", 1'000'000);  // holds the package
  EnergyMeter meter(Path(directory / ""));
  ASSERT_TRUE(meter.available());
  EXPECT_EQ(meter.joules(), 0);
  write("intel-rapl:0", "package-0", 7'000'000);
  write("intel-rapl:0:0", "core", 900'000'000);
  write("intel-rapl:0:1", "dram", 1'500'000);  // wrapped: 1 J to the end, 1.5 J from the beginning
  write("intel-rapl:1", "psys", 900'000'000);
  EXPECT_NEAR(meter.joules(), 2 + 2.5, 1e-9);
  EXPECT_NEAR(meter.joules(), 2 + 2.5, 1e-9);
}

TEST(Cost, OfPowerAndPrices) {
  PriceConfig price;
  EXPECT_FALSE(cost_of(price, 3600, {}).kwh);
  EXPECT_EQ(to_string(cost_of(price, 3600, {})), "");
  EXPECT_NEAR(*cost_of(price, 3600, 7.2e6).kwh, 2, 1e-12);  // a kWh is 3.6 MJ
  price = {.watts = 500, .per_kwh = 0.3, .per_hour = 1.5};
  const RunCost cost = cost_of(price, 7200, 1.0);
  EXPECT_NEAR(*cost.kwh, 1, 1e-12);
  EXPECT_NEAR(*cost.energy_cost, 0.3, 1e-12);
  EXPECT_NEAR(*cost.machine_cost, 3, 1e-12);
  const RunCost sum = cost + cost_from_json(to_json(cost)) + RunCost{};
  EXPECT_NEAR(*sum.kwh, 2, 1e-12);
  EXPECT_EQ(to_string(sum), "2 kWh, 0.60 for energy, 6.00 for the machine");
}

double norm_of(const Path& checkpoint, const std::string& prefix, const Path* minus = nullptr) {
  const SafetensorsFile file(checkpoint / "model.safetensors");
  double sum = 0;
  for (const std::string& name : file.names()) {
    if (!name.starts_with(prefix)) continue;
    const Tensor values = file.tensor(name);
    std::optional<SafetensorsFile> other;
    if (minus) other.emplace(*minus / "model.safetensors");
    const Tensor before = other ? other->tensor(name) : Tensor();
    const auto x = values.span<float>();
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = static_cast<double>(x[i]) - (before ? static_cast<double>(before.span<float>()[i]) : 0.0);
      sum += d * d;
    }
  }
  return std::sqrt(sum);
}

TEST_F(TrustTest, LayersSayWhatTheStepDid) {
  config.steps = 9;
  config.save_every = 1;
  config.keep_last = 20;
  config.model.tied_embeddings = false;
  run(options("plain"));
  config.detail_every = 3;
  const RunOptions o = options("run");
  run(o);
  EXPECT_EQ(final_state(o.out), final_state(directory / "plain"));  // looking changes nothing
  const auto records = records_of(o.out, "layers");
  ASSERT_EQ(records.size(), 3u);
  const Json& record = records[1];
  ASSERT_EQ(record.at("step").as_int(), 6);
  const Path after = o.out / "checkpoints" / "step-00000006", before = o.out / "checkpoints" / "step-00000005";
  std::vector<std::string> names;
  double gradient = 0;
  for (const Json& layer : record.at("layers").as_array()) {
    const std::string name = layer.at("name").as_string();
    SCOPED_TRACE(name);
    names.push_back(name);
    gradient += std::pow(layer.at("gradient_norm").as_double(), 2);
    const double weight = norm_of(after, name + (name == "head" || name == "embedding" ? "" : "."));
    const double update = norm_of(after, name + (name == "head" || name == "embedding" ? "" : "."), &before);
    EXPECT_NEAR(layer.at("weight_norm").as_double(), weight, 1e-6 * weight);
    EXPECT_NEAR(layer.at("update_norm").as_double(), update, 1e-4 * update);
    EXPECT_NEAR(layer.at("update_ratio").as_double(), update / weight, 1e-4 * update / weight);
    if (name.starts_with("layers.")) {
      EXPECT_TRUE(layer.find("activation_rms") && layer.find("max_attention_logit"));
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "head", "layers.0", "layers.1", "norm"}));
  const Json train = records_of(o.out, "train")[5];
  EXPECT_NEAR(std::sqrt(gradient), train.at("grad_norm").as_double(), 1e-6 * std::sqrt(gradient));
}

// Blocks whose projections are zero leave the residual stream alone, and their attention looks everywhere alike.
TEST_F(TrustTest, ActivationsOfBlocksThatDoNothing) {
  config.detail_every = 1;
  config.data.shuffle = false;
  Trainer trainer(resources.context, derive(config), std::make_shared<TokenSet>(directory / "data" / "train"), nullptr);
  ParamStore& weights = *trainer.model().weights;
  for (int32_t i = 0; i < weights.size(); ++i) {
    if (weights.spec(i).layer < 0 || weights.spec(i).shape.rank() < 2) continue;
    for (float& x : weights.value(i).span<float>()) x = 0;
  }
  // The embeddings that the first batch looks up.
  const Tensor table = weights.value(weights.find("embedding").index);
  TokenBatch batch;
  const Loader loader(std::make_shared<TokenSet>(directory / "data" / "train"),
                      {.length = trainer.config().data.length, .mask_documents = true, .shuffle = false, .seed = 0});
  loader.fill(0, config.batch, batch);
  double squares = 0;
  for (const int32_t id : batch.tokens) {
    for (int64_t c = 0; c < config.model.dim; ++c)
      squares += std::pow(table.span<float>()[static_cast<size_t>(id * config.model.dim + c)], 2);
  }
  const double rms =
      std::sqrt(squares / static_cast<double>(batch.tokens.size()) / static_cast<double>(config.model.dim));
  const StepResult result = trainer.step();
  std::map<std::string, LayerDetail> layers;
  for (const LayerDetail& layer : result.layers) layers[layer.name] = layer;
  for (const char* name : {"embedding", "layers.0", "layers.1"}) {
    ASSERT_TRUE(layers.at(name).activation_rms) << name;
    EXPECT_NEAR(*layers.at(name).activation_rms, rms, 1e-6 * rms) << name;
  }
  EXPECT_NEAR(*layers.at("norm").activation_rms, 1, 2e-2);  // what an RMSNorm of weight 1 gives, but for its epsilon
  EXPECT_EQ(*layers.at("layers.0").max_attention_logit, 0);
  EXPECT_FALSE(layers.at("norm").max_attention_logit);
}

}  // namespace
}  // namespace loam
