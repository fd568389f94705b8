// `loam score`: how likely a model finds a text.
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "loam/base/utf8.h"
#include "loam/session/text_session.h"

namespace loam {
namespace {

struct Options {
  std::string model, tokenizer, dtype = "f32";
  DocumentReaderOptions reader;
  std::vector<std::string> inputs;
  int64_t window = 0, stride = 0;
  bool tokens = false;
  Numerics numerics = Numerics::fast;
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
    const size_t unscored = score.ids.size() - static_cast<size_t>(score.scored);  // a first token without a begin
    for (size_t i = 0; i < score.logp.size(); ++i) logp.push_back(i < unscored ? Json() : Json(double{score.logp[i]}));
    record["ids"] = std::move(ids);
    record["logprobs"] = std::move(logp);
  }
  return record;
}

// Leaves of a score only what belongs to the text behind its first `prompt_bytes`: the tokens that hold a byte of it.
void leave_out_prompt(TextScore& score, const Tokenizer& tokenizer, int64_t prompt_bytes, int64_t text_bytes) {
  size_t first = score.ids.size();
  int64_t position = text_bytes;  // where token `first` begins
  while (first > 1 && position > prompt_bytes)
    position -= static_cast<int64_t>(tokenizer.token_bytes(score.ids[--first]).size());
  const auto count = static_cast<std::ptrdiff_t>(first);
  score.ids.erase(score.ids.begin(), score.ids.begin() + count);
  score.logp.erase(score.logp.begin(), score.logp.begin() + count);
  score.scored = static_cast<int64_t>(score.ids.size());
  score.bytes = text_bytes - std::max<int64_t>(position, 0);
  score.total_logp = std::accumulate(score.logp.begin(), score.logp.end(), 0.0);
}

// The score of a document's text, or of a pair's completion behind its prompt.
TextScore score_document(const Options& o, const ExecContext& ctx, const Model& model, const Tokenizer& tokenizer,
                         const Document& document, OutputProgress& progress) {
  const std::string text = document.prompt.value_or("") + document.text;
  if (document.text.empty()) return {};
  const double tokens = static_cast<double>(prompt_ids(tokenizer, text).size()) - 1;
  double done = 0;
  int64_t shown = 0;
  const auto on_tokens = [&](int64_t count) {
    done += static_cast<double>(count);
    const auto bytes = static_cast<int64_t>(std::min(done / tokens, 1.0) * static_cast<double>(text.size()));
    progress.advance(bytes - std::exchange(shown, bytes));
  };
  TextScore score = score_text(ctx, model, tokenizer, text, o.window, o.stride, on_tokens);
  if (document.prompt) {
    leave_out_prompt(score, tokenizer, static_cast<int64_t>(document.prompt->size()),
                     static_cast<int64_t>(text.size()));
  }
  return score;
}

std::string in_words(const std::string& name, const TextScore& score) {
  return fmt::format("{}: {} tokens, perplexity {:.4f}, {:.4f} bits a byte", printable(name), score.scored,
                     score.perplexity(), score.bits_per_byte());
}

void check_window(const Options& o, int64_t context) {
  if (o.window != 0 && (o.window < 2 || o.window > context)) {
    throw UsageError(fmt::format(
        "--window {}: must be at least 2 and at most {}, the model's context; 0 means all of it", o.window, context));
  }
  const int64_t window = o.window ? o.window : context;
  if (o.stride >= window) {
    throw UsageError(
        fmt::format("--stride {}: must be at least 1 and at most {}, less than the window; 0 means half of it",
                    o.stride, window - 1));
  }
}

int run(const Options& o, const CommonFlags& flags) {
  if (o.tokens && !flags.json) throw UsageError("--tokens needs --json");
  const std::vector<Path> files = files_of(o.inputs);
  const ExecResources exec = make_exec_resources(Device{}, flags.threads, o.numerics);
  const Model model = open_model(exec.context, o.model, parse_dtype(o.dtype));
  check_window(o, model.config().context_length);
  const Tokenizer tokenizer = open_tokenizer_for(model, o.model, o.tokenizer);
  DocumentReader reader(files, o.reader);
  OutputProgress progress("scoring", reader.input_bytes(), "bytes");
  TextScore total;
  int64_t documents = 0;
  for (Document document; reader.next(document);) {
    const TextScore score = score_document(o, exec.context, model, tokenizer, document, progress);
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

void add_score_command(Command& program) {
  auto o = std::make_shared<Options>();
  o->reader.pairs = true;
  Command c = program.add_command("score", "Log-probabilities, perplexity and bits a byte of text",
                                  "loam score --model run/model --json held-out.txt",
                                  [o](const CommonFlags& flags) { return run(*o, flags); });
  c.add_option("--model", o->model, "MODEL").required();
  c.add_option("--tokenizer", o->tokenizer, "TOKENIZER (default: the model's)");
  add_files(c, o->inputs,
            "text or JSONL files; of {\"prompt\": ..., \"completion\": ...} only the completion is scored");
  add_text_key(c, o->reader);
  add_document_separator(c, o->reader);
  add_integer(c, "--window", o->window, "tokens the model sees at once; 0: its context", 0);
  add_integer(c, "--stride", o->stride, "new tokens a window; 0: half of it", 0);
  add_dtype(c, o->dtype, "compute dtype");
  add_numerics(c, o->numerics);
  c.add_flag("--tokens", o->tokens, "with --json: the ids and the log-probability of each");
}

}  // namespace loam
