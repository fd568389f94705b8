#include "bench/train_bench.h"

#include <unistd.h>

#include <algorithm>

#include "loam/base/clock.h"
#include "loam/base/philox.h"
#include "loam/train/run_data.h"

namespace loam {
namespace {

// A directory that lives as long as the measurement.
class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(std::filesystem::temp_directory_path() / fmt::format("loam-bench-{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const Path& path() const { return path_; }

 private:
  Path path_;
};

std::shared_ptr<const TokenSet> random_tokens(const Path& directory, const TrainConfig& config) {
  TokenSetInfo info;
  info.vocab_size = config.model.vocab_size;
  info.end_of_text = 0;
  TokenSetWriter writer(directory, info);
  const PhiloxStream random{static_cast<uint64_t>(config.seed), 1};
  std::vector<int32_t> document(static_cast<size_t>(4 * config.batch * config.data.length + 1));
  for (size_t i = 0; i < document.size(); ++i)
    document[i] = static_cast<int32_t>(random.below(i, static_cast<uint64_t>(info.vocab_size)));
  writer.add(document, static_cast<int64_t>(document.size()));
  writer.finish();
  return std::make_shared<const TokenSet>(directory);
}

}  // namespace

TrainBenchResult bench_train(const ExecContext& ctx, const TrainConfig& config, int64_t steps, bool profile) {
  constexpr int64_t kWarmUp = 2;
  const TemporaryDirectory scratch;
  const TrainingData data = one_source(random_tokens(scratch.path() / "train", config), nullptr);
  TrainBenchResult result;
  if (profile) {
    result.profile = profile_training(ctx, config, data, steps, kWarmUp);
    result.step_seconds = result.profile->step_seconds;
  } else {
    Trainer trainer(ctx, config, data);
    for (int64_t i = -kWarmUp; i < steps; ++i) {
      const Stopwatch watch;
      trainer.launch();
      while (trainer.next_result(false)) continue;  // as a run does
      if (i >= 0) result.step_seconds.push_back(watch.seconds());
    }
    while (trainer.next_result(true)) continue;
  }
  std::vector<double> sorted = result.step_seconds;
  std::sort(sorted.begin(), sorted.end());
  const double tokens = static_cast<double>(config.batch * config.data.length);
  result.median_seconds = sorted[sorted.size() / 2];
  result.tokens_per_second = tokens / result.median_seconds;
  result.flops_per_second = result.tokens_per_second * training_flops_per_token(config.model, config.data.length);
  result.parameters = parameter_count(config.model);
  result.peak_bytes = ctx.arena->stats().total_peak;
  return result;
}

}  // namespace loam
