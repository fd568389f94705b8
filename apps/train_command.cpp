// `loam train`: pre-training.
#include <memory>

#include "apps/commands.h"
#include "apps/options.h"
#include "apps/train_plan.h"
#include "apps/train_profile.h"
#include "apps/train_start.h"
#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/data/token_shard.h"
#include "loam/kernels/counting_context.h"
#include "loam/session/text_session.h"
#include "loam/tensor/device_memory.h"
#include "loam/text/tokenizer_files.h"
#include "loam/train/run_origin.h"
#include "loam/train/run_summary.h"
#include "loam/train/trainer.h"
#include "loam/train/wandb.h"

namespace loam {

namespace {

struct TrainOptions {
  std::string config, data, out, resume = "auto", branch, init_from, device = "cpu";
  std::vector<std::string> settings;
  // The commonest settings as flags.
  std::vector<std::pair<std::string, std::optional<std::string>>> shortcuts = {
      {"steps", {}},         {"batch", {}},     {"micro_batch", {}}, {"optimizer.lr", {}}, {"dtype", {}},
      {"numerics", {}},      {"log_every", {}}, {"val_every", {}},   {"save_every", {}},   {"sample_every", {}},
      {"sample_prompt", {}}, {"keep_last", {}}, {"keep_every", {}},
  };
  int64_t profile_steps = 0;  // 0: a run
  bool deterministic = false, overfit = false, dry_run = false, force = false, allow_changed_config = false,
       wandb = false;
};

std::string flag_of(const std::string& setting) {
  std::string flag = "--" + setting.substr(setting.rfind('.') + 1);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

TrainConfig read_config(const TrainOptions& o, const CommonFlags& flags, const RunOptions& options) {
  std::vector<TypedSetting> settings = typed_settings(o.settings);
  for (const auto& [name, value] : o.shortcuts) {
    if (value) settings.push_back({name + "=" + *value, flag_of(name) + " " + *value});
  }
  if (o.deterministic) settings.push_back({"numerics=deterministic", "--deterministic"});
  std::vector<TypedSetting> all = settings;
  if (!o.data.empty()) all.push_back({"data.path=" + o.data, "--data " + o.data});
  if (flags.seed) all.push_back({fmt::format("seed={}", *flags.seed), fmt::format("--seed {}", *flags.seed)});
  if (o.overfit) all.push_back({"overfit_one_batch=true", "--overfit-one-batch"});
  check_agreement(all);
  TrainConfig config = read_start_config(o.config, settings, options);
  if (!o.data.empty()) config.data.path = o.data;
  if (flags.seed) config.seed = *flags.seed;
  if (o.overfit) config.overfit_one_batch = true;
  return config;
}

// Text from the model as it stands, drawn with the same random numbers each time.
std::function<std::string(const Model&)> make_sampler(const ExecContext& ctx, const TrainConfig& config) {
  const Path data = first_data_path(config.data), tokens = data / "train", file = data / "tokenizer.json";
  if (!std::filesystem::exists(file)) {
    if (std::filesystem::exists(tokens))
      log_warn("{} is not there: no samples, and a model directory without a tokenizer", file.string());
    return {};
  }
  auto tokenizer = std::make_shared<Tokenizer>(load_tokenizer(file));
  const TokenSet set(tokens);
  LOAM_CHECK(set.info().tokenizer_fingerprint == tokenizer->fingerprint(),
             "{} is not the tokenizer that made the tokens beside it", file.string());
  if (config.sample_every == 0 || config.model.context_length < 2) return {};
  return [ctx, config, tokenizer](const Model& model) {
    TextRequest request;
    request.prompt = config.sample_prompt;
    request.max_tokens = config.sample_tokens;
    request.sampling.temperature = 0.8f;
    request.sampling.top_k = 50;
    request.sampling.seed = static_cast<uint64_t>(config.seed);
    return config.sample_prompt + generate_text(ctx, model, *tokenizer, {request}, {})[0].text;
  };
}

// Gives the text of batches that went wrong, with the tokenizer beside the data; none if that cannot be read.
std::function<std::string(std::span<const int32_t>)> make_decoder(const Path& data) {
  auto tokenizer = std::make_shared<std::optional<Tokenizer>>();
  return [data, tokenizer](std::span<const int32_t> ids) -> std::string {
    try {
      if (!*tokenizer) tokenizer->emplace(load_tokenizer(data / "tokenizer.json"));
      return (*tokenizer)->decode(ids);
    } catch (const Error&) {
      return "";
    }
  };
}

RunOptions run_options(const TrainOptions& o, const CommonFlags& flags) {
  if (!o.branch.empty() && !o.init_from.empty()) throw UsageError("--branch and --init-from exclude each other");
  if (!o.branch.empty() && !o.config.empty())
    throw UsageError("--branch takes the configuration of its checkpoint, which --set changes: no --config");
  RunOptions options;
  options.out = o.out;
  if (o.resume == "never") {
    options.resume = RunOptions::Resume::never;
  } else if (o.resume != "auto") {
    if (!o.branch.empty() || !o.init_from.empty())
      throw UsageError("--resume CHECKPOINT goes on with a run, --branch and --init-from begin one");
    options.resume_from = o.resume;
  }
  if (!o.branch.empty()) options.branch = o.branch;
  if (!o.init_from.empty()) options.init_from = o.init_from;
  options.allow_changed_config = o.allow_changed_config;
  options.force = o.force;
  options.version = program_version();
  options.commit = program_commit();
  options.command_line = flags.command_line;
  return options;
}

// Also of a run that ended in an error, whose curve is what one wants to see. The run counts, not its copy.
void write_for_wandb(const Path& run) {
  try {
    if (is_run(run) && read_run(run).status != "running") {
      log_info("for Weights & Biases: wandb sync {}", write_wandb_run(run).string());
    }
  } catch (const Error& error) {
    log_warn("--wandb: {}", error.what());
  }
}

RunSummary run(const ExecContext& ctx, const TrainConfig& config, const RunOptions& options, bool wandb) {
  try {
    const RunSummary summary = run_training(ctx, config, options);
    if (wandb) write_for_wandb(options.out);
    return summary;
  } catch (const Error&) {
    if (wandb) write_for_wandb(options.out);
    throw;
  }
}

// A plan may be for a GPU that is not here.
ExecResources resources_for(const TrainOptions& o, const CommonFlags& flags) {
  const Device device = parse_device(o.device);
  return o.dry_run && device_count(device.kind) == 0 ? make_counting_resources(device, flags.threads)
                                                     : make_exec_resources(device, flags.threads);
}

int train(const TrainOptions& o, const CommonFlags& flags) {
  const ExecResources resources = resources_for(o, flags);
  const ExecContext& ctx = resources.context;
  RunOptions options = run_options(o, flags);
  settle_origin(options);
  const TrainConfig config = read_config(o, flags, options);
  if (!o.dry_run && o.out.empty()) throw UsageError("--out is required");
  if (o.force && o.resume == "auto" && o.profile_steps == 0)
    throw UsageError("--force needs --resume never or a checkpoint");
  if (!o.dry_run && first_data_path(config.data).empty()) throw UsageError("--data is required");

  if (options.init_from) warn_of_other_tokenizer(*options.init_from, first_data_path(config.data));
  if (!first_data_path(config.data).empty()) options.sample = make_sampler(ctx, config);
  options.decode = make_decoder(first_data_path(config.data));
  if (o.dry_run) return print_run_plan(ctx, config, options, flags.json);
  if (o.profile_steps > 0) return profile_run(ctx, config, options, o.profile_steps, flags.json);
  const RunSummary summary = run(ctx, config, options, o.wandb);

  if (flags.json) {
    Json report = Json::Object{{"run", summary.id},
                               {"steps", summary.steps},
                               {"loss", summary.final_loss},
                               {"val_loss", summary.final_val_loss},
                               {"tokens_per_second", summary.tokens_per_second},
                               {"seconds", summary.seconds},
                               {"interrupted", summary.interrupted},
                               {"model", summary.has_model ? Json((options.out / "model").string()) : Json()}};
    for (const auto& [set, result] : summary.validations) {
      report["val"][set] = Json::Object{{"loss", result.loss}, {"bits_per_byte", result.bits_per_byte}};
    }
    const Json costs = to_json(summary.cost);
    for (const auto& [key, value] : costs.as_object()) report[key] = value;
    print(report.dump());
  } else if (!summary.has_model) {
    log_info(
        "stopped before the first step: nothing was trained, and there is no model; the same command begins again");
  } else {
    log_info("{} after {} steps, {}; the model is in {}", summary.interrupted ? "stopped" : "done", summary.steps,
             format_duration(summary.seconds), (options.out / "model").string());
    if (summary.interrupted) log_info("the same command goes on from there");
  }
  return 0;
}

}  // namespace

void add_train_command(Command& program) {
  auto o = std::make_shared<TrainOptions>();
  Command command = program.add_command("train", "Train a model on token shards",
                                        "loam train --config quickstart --data data/bible --out runs/first",
                                        [o](const CommonFlags& flags) { return train(*o, flags); });
  command.add_option("--config", o->config, "recipe (`loam recipes`) or file; default: the defaults");
  command.add_option("--set", o->settings, "change a setting (`loam config explain`): key.sub=value");
  command.add_option("--data", o->data, "directory made by `loam data tokenize`");
  command.add_option("--out", o->out, "directory of the run: checkpoints, metrics, pictures, model");
  command.add_option("--resume", o->resume, "auto (the newest checkpoint in --out), never, or a checkpoint");
  command.add_option("--branch", o->branch,
                     "begin with the state of another run's checkpoint (of a run: the newest), and let the rate of "
                     "wsd decay from there");
  command.add_option("--init-from", o->init_from,
                     "begin with the weights and the configuration of a MODEL directory (or of a run's)");
  for (auto& [setting, value] : o->shortcuts) {
    command.add_option(flag_of(setting), value, "short for --set " + setting + "=...");
  }
  add_device(command, o->device);
  command.add_flag("--deterministic", o->deterministic, "short for --numerics deterministic");
  command.add_flag("--overfit-one-batch", o->overfit, "train on the first batch for ever: the loss must go to 0");
  command.add_flag("--dry-run", o->dry_run, "say what the run needs and whether it fits, and do nothing");
  const auto set_profile = [o](const std::string& word) {
    o->profile_steps = parse_integer("--profile", word, 1, 1000);
  };
  command
      .add_option("--profile", set_profile,
                  "instead of a run take so many steps apart, kernel by kernel: a table, and files in --out/profile")
      .show_type("INT")
      .word_or("5");
  command.add_flag("--wandb", o->wandb,
                   "write the run for Weights & Biases too, in its offline form, when it ends or stops");
  command.add_flag("--allow-changed-config", o->allow_changed_config, "resume although settings have changed");
  command.add_flag(
      "--force", o->force,
      "with --resume never: replace the run in --out; with a checkpoint: remove later ones; with --profile: "
      "replace a profile");
}

}  // namespace loam
