#include "loam/train/run_dump.h"

#include <cmath>

namespace loam {
namespace {

namespace fs = std::filesystem;

// JSON has no NaN and no infinity: they are words.
Json number_or_word(const std::optional<double>& value) {
  if (!value || std::isfinite(*value)) return Json(value);
  return Json(std::isnan(*value) ? "nan" : *value > 0 ? "inf" : "-inf");
}

}  // namespace

Path write_dump(const Path& out, const Trainer& trainer, int64_t step, const StepResult& result,
                const std::string& reason, const std::function<std::string(std::span<const int32_t>)>& decode) {
  const Path directory = out / "dumps";
  const int64_t first = trainer.first_sample(step);
  const bool moved = !trainer.config().overfit_one_batch && first != (step - 1) * trainer.config().batch;
  const Path path = directory / (moved ? fmt::format("step-{}-sample-{}.json", step, first)  //
                                       : fmt::format("step-{}.json", step));
  fs::create_directories(directory);
  if (!fs::exists(path) && std::distance(fs::directory_iterator(directory), {}) >= kMaxDumps) return {};
  const Json json = Json::Object{{"step", step},
                                 {"reason", reason},
                                 {"loss", number_or_word(result.loss)},
                                 {"grad_norm", number_or_word(result.grad_norm)},
                                 {"lr", result.learning_rate},
                                 {"first_sample", first},
                                 {"rows", trainer.describe_rows(decode)}};
  write_file_atomic(path, json.dump() + "\n");
  return path;
}

}  // namespace loam
