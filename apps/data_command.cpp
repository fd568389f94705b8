// `loam data tokenize`.
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "loam/base/log.h"
#include "loam/data/tokenize.h"

namespace loam {
namespace {

struct Options {
  std::vector<std::string> inputs;
  std::string tokenizer, out;
  TokenizeOptions tokenize;
};

Json describe(const TokenSetInfo& info) {
  Json part;
  part["tokens"] = info.tokens;
  part["documents"] = info.documents;
  part["text_bytes"] = info.text_bytes;
  return part;
}

// Files that a directory or pattern among the inputs finds there are left out; one that was named is not.
void check_inputs(const Options& o) {
  for (const std::string& input : o.inputs) {
    std::error_code error;
    if (std::filesystem::is_regular_file(input, error) && lies_below(input, o.out))
      throw UsageError("--input " + input + ": lies in --out " + o.out + ", which is written anew");
  }
}

int tokenize(Options& o, const CommonFlags& flags) {
  check_inputs(o);
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, "", -1);
  o.tokenize.inputs = files_of(o.inputs);
  o.tokenize.threads = flags.threads;
  const TokenizeResult result = tokenize_documents(tokenizer, o.tokenize, o.out);
  if (result.bad_lines > 0) log_warn("{} bad lines were left out", result.bad_lines);
  if (flags.json) {
    Json report;
    report["out"] = o.out;
    report["train"] = describe(result.train);
    report["val"] = describe(result.val);
    report["bad_lines"] = result.bad_lines;
    print(report.dump());
    return 0;
  }
  print(fmt::format(
      "{}: train {} tokens in {} documents, val {} tokens in {} documents, {:.2f} bytes a token", o.out,
      result.train.tokens, result.train.documents, result.val.tokens, result.val.documents,
      static_cast<double>(result.train.text_bytes) / static_cast<double>(std::max<int64_t>(1, result.train.tokens))));
  return 0;
}

}  // namespace

void add_data_commands(Command& program) {
  Command group = program.add_group("data", "Prepare documents for training");
  auto o = std::make_shared<Options>();
  Command c =
      group.add_command("tokenize", "Documents to token shards",
                        "loam data tokenize --input corpus.jsonl --tokenizer tok --val-fraction 0.01 --out data",
                        [o](const CommonFlags& flags) { return tokenize(*o, flags); });
  add_input(c, o->inputs);
  c.add_option("--tokenizer", o->tokenizer, "TOKENIZER").required();
  c.add_option("--out", o->out, "new directory").required();
  add_number(c, "--val-fraction", o->tokenize.val_fraction, "share of the documents kept for validation", 0, 0.9);
  add_text_key(c, o->tokenize.reader);
  add_document_separator(c, o->tokenize.reader);
  add_integer(c, "--limit", o->tokenize.limit, "documents to take; 0: all", 0);
  c.add_flag("--force", o->tokenize.force, "replace --out");
  add_import_command(group);
}

}  // namespace loam
