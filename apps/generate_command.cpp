// `loam generate`: text from a model.
#include <algorithm>
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "apps/replies.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/session/text_session.h"

namespace loam {
namespace {

constexpr int64_t kMaxReplies = 1 << 20, kMaxSampledK = int64_t{1} << 31;

struct Options {
  std::string model, tokenizer, input, out, dtype = "f32", device = "cpu", prompt_key = "prompt";
  std::optional<std::string> prompt;
  TextRequest request;
  GenerateOptions engine;
  Numerics numerics = Numerics::fast;
  int64_t num = 1;
  bool force = false;
};

void check(const Options& o) {
  std::error_code same;
  if (!o.out.empty() && !o.input.empty() && std::filesystem::equivalent(o.out, o.input, same))
    throw UsageError("--out " + o.out + ": is the --input");
  if (o.prompt.has_value() == !o.input.empty()) throw UsageError("give either --prompt or --input");
  for (const std::string& stop : o.request.stops) {
    if (stop.empty()) throw UsageError("--stop: the string is empty");
  }
  std::error_code error;
  if (!o.out.empty() && !o.force && std::filesystem::exists(o.out, error))
    fail(ErrorCode::kAlreadyExists, "{}: already exists (--force replaces it)", o.out);
}

void log_timing(const GenerateStats& stats, size_t replies) {
  // The first token of a reply comes from the prompt's pass.
  const auto decoded = static_cast<double>(stats.new_tokens - static_cast<int64_t>(replies));
  log_info("{} prompt tokens in {:.2f} s, {} new tokens{}", stats.prompt_tokens, stats.prefill_seconds,
           stats.new_tokens, decoded > 0 ? fmt::format(" at {:.1f} tok/s", decoded / stats.decode_seconds) : "");
}

// One JSON object a line for each reply.
template <class Write>
void write_records(const std::vector<Prompt>& prompts, const std::vector<TextResult>& results, int64_t num,
                   Write&& write) {
  for (size_t i = 0; i < results.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    write(reply_line(results[i], prompts[static_cast<size_t>(number / num)], number % num));
  }
}

// Replies as JSONL in --out, or on stdout.
void write_batch(const Options& o, const CommonFlags& flags, const ExecContext& ctx, const Model& model,
                 const Tokenizer& tokenizer) {
  const std::vector<Prompt> prompts =
      o.prompt ? std::vector<Prompt>{{*o.prompt, {}, "--prompt"}} : read_prompts(o.input, o.prompt_key);
  const auto requests = make_requests(prompts, o.request, o.num, tokenizer, model.config());
  std::optional<AtomicFile> file;  // opened before the work
  if (!o.out.empty()) file.emplace(o.out);
  const int64_t longest = std::min(o.request.max_tokens, model.config().context_length);
  OutputProgress progress("generating", static_cast<int64_t>(requests.size()) * longest, "tokens", !file);
  GenerateStats stats;
  const auto results = generate_text(
      ctx, model, tokenizer, requests, o.engine, [&](size_t, const std::string&) { progress.advance(1); }, &stats);
  progress.finish();
  if (!file) {
    write_records(prompts, results, o.num, write_output);
    flush_output();
  } else {
    if (interrupted()) fail(ErrorCode::kInterrupted, "interrupted: {} is not written", o.out);
    write_records(prompts, results, o.num, [&](const std::string& line) { file->write(line); });
    file->commit();
  }
  if (file && flags.json) {
    Json report = describe_timing(stats);
    report["out"] = o.out;
    report["replies"] = static_cast<int64_t>(results.size());
    print(report.dump());
  }
  log_timing(stats, results.size());
}

void add_stats(GenerateStats& sum, const GenerateStats& more) {
  sum.prompt_tokens += more.prompt_tokens;
  sum.new_tokens += more.new_tokens;
  sum.prefill_seconds += more.prefill_seconds;
  sum.decode_seconds += more.decode_seconds;
}

// One reply to --prompt, as it comes.
GenerateStats stream_reply(const Options& o, const ExecContext& ctx, const Model& model, const Tokenizer& tokenizer,
                           const std::vector<TextRequest>& requests) {
  std::string waiting = *o.prompt;  // shown once the request has proved good
  const auto show = [&](size_t, const std::string& text) {
    write_output(waiting + text);
    flush_output();
    waiting.clear();
  };
  GenerateStats stats;
  generate_text(ctx, model, tokenizer, requests, o.engine, show, &stats);
  print(waiting);
  return stats;
}

// The replies to --prompt on stdout, as many at once as run together.
void print_replies(const Options& o, const CommonFlags& flags, const ExecContext& ctx, const Model& model,
                   const Tokenizer& tokenizer) {
  const std::vector<Prompt> prompts = {{*o.prompt, {}, "--prompt"}};
  const auto requests = make_requests(prompts, o.request, o.num, tokenizer, model.config());
  GenerateStats stats;
  if (o.num == 1 && !flags.json) {
    stats = stream_reply(o, ctx, model, tokenizer, requests);
  } else {
    const auto batch = static_cast<size_t>(o.engine.batch);
    for (size_t first = 0; first < requests.size() && !interrupted(); first += batch) {
      const auto begin = requests.begin() + static_cast<int64_t>(first);
      const std::vector<TextRequest> some(begin,
                                          begin + static_cast<int64_t>(std::min(batch, requests.size() - first)));
      GenerateStats part;
      const auto results = generate_text(ctx, model, tokenizer, some, o.engine, {}, &part);
      for (size_t i = 0; i < results.size(); ++i) {
        const auto number = static_cast<int64_t>(first + i);
        if (flags.json) {
          Json record = describe_reply(results[i], prompts[0], number);
          record["timing"] = describe_timing(part);
          print(record.dump());
        } else {
          print(fmt::format("--- {} of {}\n{}{}", number + 1, o.num, *o.prompt, results[i].text));
        }
      }
      flush_output();  // the text stands before the line about it
      add_stats(stats, part);
    }
  }
  flush_output();
  log_timing(stats, requests.size());
}

int run(Options& o, const CommonFlags& flags) {
  check(o);
  if (flags.seed) o.request.sampling.seed = static_cast<uint64_t>(*flags.seed);
  const ExecResources exec = make_exec_resources(parse_device(o.device), flags.threads, o.numerics);
  const Model model = open_model(exec.context, o.model, parse_dtype(o.dtype));
  const Tokenizer tokenizer = open_tokenizer_for(model, o.model, o.tokenizer);
  (o.prompt && o.out.empty() ? print_replies : write_batch)(o, flags, exec.context, model, tokenizer);
  if (!interrupted()) return 0;
  log_warn("interrupted: replies with the finish reason \"cancelled\" are not whole");
  return 1;
}

}  // namespace

void add_generate_command(Command& program) {
  auto o = std::make_shared<Options>();
  Command c = program.add_command(
      "generate", "Write text with a model",
      "loam generate --model run/model --prompt \"In the beginning\" --max-tokens 100 --temperature 0.8",
      [o](const CommonFlags& flags) { return run(*o, flags); });
  SamplingOptions& sampling = o->request.sampling;
  c.add_option("--model", o->model, "MODEL").required();
  c.add_option("--tokenizer", o->tokenizer, "TOKENIZER (default: the model's)");
  c.add_option("--prompt", o->prompt, "text to go on from; empty starts a new document");
  c.add_option("--input", o->input,
               "JSONL of prompts, one {\"prompt\": ...} a line; an \"id\" in it comes back with the reply");
  c.add_option("--prompt-key", o->prompt_key, "member that holds the prompt").show_default(o->prompt_key);
  c.add_option("--out", o->out, "JSONL of replies (default with --input: standard output)");
  add_integer(c, "--max-tokens", o->request.max_tokens, "longest reply", 1);
  add_number(c, "--temperature", sampling.temperature, "0: always the most likely token", 0, 1e30);
  add_integer(c, "--top-k", sampling.top_k, "only the k most likely tokens; 0: all", 0, kMaxSampledK);
  add_number(c, "--top-p", sampling.top_p, "only the most likely tokens whose mass reaches p", 0, 1, true);
  add_number(c, "--min-p", sampling.min_p, "only tokens with this share of the best one's probability", 0, 1);
  c.add_option("--stop", o->request.stops, "string that ends a reply; may be repeated").one_word_each();
  add_integer(c, "--num", o->num, "replies a prompt", 1, kMaxReplies);
  add_integer(c, "--batch", o->engine.batch, "sequences that run together", 1);
  add_dtype(c, o->dtype, "compute dtype");
  add_numerics(c, o->numerics);
  add_device(c, o->device);
  c.add_flag("!--no-cache", o->engine.use_cache,
             "compute the whole sequence again for every token (slow; the reference)");
  c.add_flag("--force", o->force, "replace --out");
}

}  // namespace loam
