// `loam generate`: text from a model.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/command.h"
#include "apps/open_model.h"
#include "apps/replies.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/session/text_session.h"

namespace loam {
namespace {

struct Options {
  std::string model, tokenizer, input, out, dtype = "f32", device = "cpu", prompt_key = "prompt";
  std::optional<std::string> prompt;
  TextRequest request;
  GenerateOptions engine;
  int64_t num = 1;
  bool force = false;
};

// One reply on the terminal, as it comes; several one after the other.
void print_replies(const std::vector<TextRequest>& requests, const std::vector<TextResult>& results,
                   const GenerateStats& stats, const CommonFlags& flags) {
  if (flags.json) {
    for (size_t i = 0; i < results.size(); ++i) {
      Json record = describe_reply(results[i], requests[i].prompt);
      record["timing"] = describe_timing(stats);
      print(record.dump());
    }
    return;
  }
  if (results.size() == 1) {
    print("");
  } else {
    for (size_t i = 0; i < results.size(); ++i)
      print(fmt::format("--- {} of {}\n{}{}", i + 1, results.size(), requests[i].prompt, results[i].text));
  }
  std::fflush(stdout);  // the text stands before the line about it
  // The first token of a reply comes from the prompt's pass.
  const auto decoded = static_cast<double>(stats.new_tokens - static_cast<int64_t>(results.size()));
  log_info("{} prompt tokens in {:.2f} s, {} new tokens{}", stats.prompt_tokens, stats.prefill_seconds,
           stats.new_tokens, decoded > 0 ? fmt::format(" at {:.1f} tok/s", decoded / stats.decode_seconds) : "");
}

int run(Options& o, const CommonFlags& flags) {
  if (o.prompt.has_value() == !o.input.empty()) throw UsageError("give either --prompt or --input");
  if (!o.input.empty() && o.out.empty()) throw UsageError("--input needs --out");
  if (o.num < 1) throw UsageError("--num must be at least 1");
  std::error_code error;
  if (!o.out.empty() && !o.force && std::filesystem::exists(o.out, error))
    fail(ErrorCode::kAlreadyExists, "{} exists; --force replaces it", o.out);
  if (flags.seed) o.request.sampling.seed = static_cast<uint64_t>(*flags.seed);
  const ExecResources exec = make_exec_resources(parse_device(o.device), flags.threads);
  const Model model = open_model(exec.context, o.model, parse_compute_dtype(o.dtype));
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, o.model, model.config().vocab_size);
  check_vocabulary(tokenizer, model.config());
  const auto requests =
      make_requests(o.prompt ? std::vector{*o.prompt} : read_prompts(o.input, o.prompt_key), o.request, o.num);

  GenerateStats stats;
  const bool stream = requests.size() == 1 && !flags.json && o.out.empty();
  std::optional<AtomicFile> file;  // opened before the work
  if (!o.out.empty()) file.emplace(o.out);
  std::string waiting = stream ? requests[0].prompt : "";  // shown once the request has proved good
  Progress progress("generating", o.out.empty() ? 0 : static_cast<int64_t>(requests.size()) * o.request.max_tokens,
                    "tokens");
  const auto results = generate_text(
      exec.context, model, tokenizer, requests, o.engine,
      [&](size_t, const std::string& text) {
        if (!o.out.empty()) progress.advance(1);
        if (!stream) return;
        waiting += text;
        std::fwrite(waiting.data(), 1, waiting.size(), stdout);
        std::fflush(stdout);
        waiting.clear();
      },
      &stats);
  std::fwrite(waiting.data(), 1, waiting.size(), stdout);
  if (o.out.empty()) {
    print_replies(requests, results, stats, flags);
  } else {
    for (size_t i = 0; i < results.size(); ++i)
      file->write(describe_reply(results[i], requests[i].prompt).dump() + "\n");
    file->commit();
  }
  return interrupted() ? 1 : 0;
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c =
      add_command(app, "generate", "Write text with a model",
                  "loam generate --model run/model --prompt \"In the beginning\" --max-tokens 100 --temperature 0.8",
                  [o](const CommonFlags& flags) { return run(*o, flags); });
  SamplingOptions& sampling = o->request.sampling;
  c->add_option("--model", o->model, "MODEL")->required();
  c->add_option("--tokenizer", o->tokenizer, "TOKENIZER (default: the model's)");
  c->add_option("--prompt", o->prompt, "text to go on from; empty starts a new document");
  c->add_option("--input", o->input, "JSONL of prompts, one {\"prompt\": ...} a line");
  c->add_option("--prompt-key", o->prompt_key, "member that holds the prompt")->capture_default_str();
  c->add_option("--out", o->out, "JSONL of replies");
  c->add_option("--max-tokens", o->request.max_tokens, "longest reply")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  c->add_option("--temperature", sampling.temperature, "0: always the most likely token")->capture_default_str();
  c->add_option("--top-k", sampling.top_k, "only the k most likely tokens; 0: all")->capture_default_str();
  c->add_option("--top-p", sampling.top_p, "only the most likely tokens whose mass reaches p")->capture_default_str();
  c->add_option("--min-p", sampling.min_p, "only tokens with this share of the best one's probability")
      ->capture_default_str();
  c->add_option("--stop", o->request.stops, "string that ends a reply; may be repeated")->allow_extra_args(false);
  c->add_option("--num", o->num, "replies a prompt")->capture_default_str();
  c->add_option("--batch", o->engine.batch, "sequences that run together")->capture_default_str();
  c->add_option("--dtype", o->dtype, "f32 or bf16")->capture_default_str();
  c->add_option("--device", o->device, "where to run")->capture_default_str();
  c->add_flag("!--no-cache", o->engine.use_cache,
              "compute the whole sequence again for every token (slow; the reference)");
  c->add_flag("--force", o->force, "replace --out");
}

}  // namespace loam
