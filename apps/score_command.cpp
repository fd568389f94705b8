// `loam score`: how likely a model finds a text.
#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>

#include "apps/command.h"
#include "apps/open_model.h"
#include "loam/base/interrupt.h"
#include "loam/data/document.h"
#include "loam/session/text_session.h"

namespace loam {
namespace {

struct Options {
  std::string model, tokenizer, dtype = "f32", text_key = "text";
  std::vector<std::string> inputs;
  int64_t window = 0, stride = 0;
  bool tokens = false;
};

DocumentReaderOptions reader_options(const std::string& text_key) {
  DocumentReaderOptions options;
  options.text_key = text_key;
  return options;
}

Json describe(const std::string& id, const TextScore& score, bool tokens) {
  Json record;
  record["id"] = id;
  record["tokens"] = score.scored;
  record["bytes"] = score.bytes;
  record["logprob"] = score.total_logp;
  record["perplexity"] = score.perplexity();
  record["bits_per_byte"] = score.bits_per_byte();
  if (tokens) {
    Json ids = Json::array(), logp = Json::array();
    for (int32_t token : score.ids) ids.push_back(int64_t{token});
    for (size_t i = 0; i < score.logp.size(); ++i) logp.push_back(i ? Json(double{score.logp[i]}) : Json());
    record["ids"] = std::move(ids);
    record["logprobs"] = std::move(logp);
  }
  return record;
}

int run(const Options& o, const CommonFlags& flags) {
  const ExecResources exec = make_exec_resources(Device{}, flags.threads);
  const Model model = open_model(exec.context, o.model, parse_compute_dtype(o.dtype));
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, o.model, model.config().vocab_size);
  check_vocabulary(tokenizer, model.config());
  DocumentReader reader(expand_inputs(o.inputs.empty() ? std::vector<std::string>{"-"} : o.inputs),
                        reader_options(o.text_key));
  TextScore total;
  for (Document document; reader.next(document);) {
    const TextScore score = score_text(exec.context, model, tokenizer, document.text, o.window, o.stride);
    if (score.scored == 0) continue;  // no text
    total.scored += score.scored;
    total.bytes += score.bytes;
    total.total_logp += score.total_logp;
    if (flags.json) {
      print(describe(document.id, score, o.tokens).dump());
    } else {
      print(fmt::format("{}: {} tokens, perplexity {:.4f}, {:.4f} bits a byte", document.id, score.scored,
                        score.perplexity(), score.bits_per_byte()));
    }
  }
  LOAM_CHECK(total.scored > 0, "score: the input holds no text");
  if (!flags.json) {
    print(fmt::format("all: {} tokens, perplexity {:.4f}, {:.4f} bits a byte", total.scored, total.perplexity(),
                      total.bits_per_byte()));
  }
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
  c->add_option("F", o->inputs, "text or JSONL files; default: standard input");
  c->add_option("--text-key", o->text_key, "member of JSONL objects that holds the text")->capture_default_str();
  c->add_option("--window", o->window, "tokens the model sees at once; 0: its context");
  c->add_option("--stride", o->stride, "new tokens a window; 0: half of it");
  c->add_option("--dtype", o->dtype, "f32 or bf16")->capture_default_str();
  c->add_flag("--tokens", o->tokens, "with --json: the ids and the log-probability of each");
}

}  // namespace loam
