// `loam score`: how likely a model finds a text.
#include <CLI/CLI.hpp>
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "loam/session/text_session.h"

namespace loam {
namespace {

struct Options {
  std::string model, tokenizer, dtype = "f32";
  DocumentReaderOptions reader;
  std::vector<std::string> inputs;
  int64_t window = 0, stride = 0;
  bool tokens = false;
};

Json describe(const TextScore& score, Json record = {}) {
  record["tokens"] = score.scored;
  record["bytes"] = score.bytes;
  record["logprob"] = score.total_logp;
  record["perplexity"] = score.perplexity();
  record["bits_per_byte"] = score.bits_per_byte();
  return record;
}

Json describe(const std::string& id, const TextScore& score, bool tokens) {
  Json record = describe(score, Json::Object{{"id", id}});
  if (tokens) {
    Json ids = Json::array(), logp = Json::array();
    for (int32_t token : score.ids) ids.push_back(int64_t{token});
    for (size_t i = 0; i < score.logp.size(); ++i) logp.push_back(i ? Json(double{score.logp[i]}) : Json());
    record["ids"] = std::move(ids);
    record["logprobs"] = std::move(logp);
  }
  return record;
}

std::string in_words(const std::string& name, const TextScore& score) {
  return fmt::format("{}: {} tokens, perplexity {:.4f}, {:.4f} bits a byte", name, score.scored, score.perplexity(),
                     score.bits_per_byte());
}

int run(const Options& o, const CommonFlags& flags) {
  if (o.tokens && !flags.json) throw UsageError("--tokens needs --json");
  const std::vector<Path> files = files_of(o.inputs);
  const ExecResources exec = make_exec_resources(Device{}, flags.threads);
  const Model model = open_model(exec.context, o.model, parse_dtype(o.dtype));
  const int64_t window = o.window ? o.window : model.config().context_length;
  if (window > model.config().context_length || o.stride >= window)
    throw UsageError(
        fmt::format("--window {} --stride {}: the model's context is {}, and a stride is less than its window",
                    o.window, o.stride, model.config().context_length));
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, o.model, model.config().vocab_size);
  check_vocabulary(tokenizer, model.config());
  DocumentReader reader(files, o.reader);
  OutputProgress progress("scoring", reader.input_bytes(), "bytes");
  TextScore total;
  int64_t documents = 0;
  for (Document document; reader.next(document);) {
    const TextScore score = score_text(exec.context, model, tokenizer, document.text, o.window, o.stride);
    progress.advance(static_cast<int64_t>(document.text.size()));
    if (score.scored == 0) continue;  // no text
    ++documents;
    total.scored += score.scored;
    total.bytes += score.bytes;
    total.total_logp += score.total_logp;
    print(flags.json ? describe(document.id, score, o.tokens).dump() : in_words(document.id, score));
  }
  progress.finish();
  warn_of_bad_lines(reader);
  LOAM_CHECK(total.scored > 0, "score: the input holds no text");
  Json sum = describe(total);
  sum["documents"] = documents;
  sum["bad_lines"] = reader.bad_lines();
  print(flags.json ? Json(Json::Object{{"total", sum}}).dump() : in_words("all", total));
  return 0;
}

}  // namespace

void add_score_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = add_command(app, "score", "Log-probabilities, perplexity and bits a byte of text",
                            "loam score --model run/model --json held-out.txt",
                            [o](const CommonFlags& flags) { return run(*o, flags); });
  c->add_option("--model", o->model, "MODEL")->required();
  c->add_option("--tokenizer", o->tokenizer, "TOKENIZER (default: the model's)");
  add_files(*c, o->inputs, "text or JSONL files");
  add_text_key(*c, o->reader);
  add_document_separator(*c, o->reader);
  add_integer(*c, "--window", o->window, "tokens the model sees at once; 0: its context", 0);
  add_integer(*c, "--stride", o->stride, "new tokens a window; 0: half of it", 0);
  add_dtype(*c, o->dtype, "compute dtype");
  c->add_flag("--tokens", o->tokens, "with --json: the ids and the log-probability of each");
}

}  // namespace loam
