#include "apps/train_start.h"

#include "loam/base/log.h"
#include "loam/data/token_shard.h"
#include "loam/model/families/family.h"
#include "loam/text/tokenizer_files.h"
#include "loam/train/run_origin.h"

namespace loam {
namespace {

// Settings may change how the model is trained, such as dropout, but not what it computes.
void check_model_settings(const TrainConfig& before, const TrainConfig& after, const Path& model) {
  const ModelConfig kept = derive(before.model), changed = derive(after.model);
  if (computes_the_same(kept, changed)) return;
  std::string list;
  for (const std::string& line : config_diff(config_to_json(kept), config_to_json(changed))) {
    list += (list.empty() ? "model." : "; model.") + line;
  }
  throw UsageError(fmt::format("the settings contradict the model in {}: {}", model.string(), list));
}

}  // namespace

TrainConfig read_start_config(const std::string& recipe, const std::vector<TypedSetting>& settings,
                              const RunOptions& options) {
  if (!options.branch && !options.init_from) return read_train_config(recipe, settings);
  const std::optional<Path> goes_on = newest_with_origin(options);
  const TrainConfig base = origin_config(options, read_train_config(recipe, {}), goes_on);
  TrainConfig config = base;
  for (const auto& [assignment, typed] : settings) as_usage(typed, [&] { config_set(config, assignment); });
  if (options.branch && !goes_on) as_usage("--branch", [&] { settle_branch(*options.branch, config); });
  if (options.init_from && !goes_on) check_model_settings(base, config, *options.init_from);
  return config;
}

void warn_of_other_tokenizer(const Path& model, const Path& data) {
  const Path file = model / "tokenizer.json", tokens = data / "train";
  if (!std::filesystem::exists(file) || !std::filesystem::exists(tokens)) return;
  std::string found;
  try {
    found = load_tokenizer(file).fingerprint();
  } catch (const Error& error) {
    return log_warn("{}: cannot be compared with the data's tokenizer: {}", file.string(), error.what());
  }
  if (found == TokenSet(tokens).info().tokenizer_fingerprint) return;
  log_warn("{} is not the tokenizer that made {}: the same ids may stand for other texts", file.string(),
           tokens.string());
}

}  // namespace loam
