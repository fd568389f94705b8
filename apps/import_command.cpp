// `loam data import`.
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "loam/data/import.h"

namespace loam {
namespace {

const std::vector<std::pair<std::string, TokenFileFormat>> kFormats = {{"auto", TokenFileFormat::automatic},
                                                                       {"bin-u16", TokenFileFormat::bin_u16},
                                                                       {"bin-u32", TokenFileFormat::bin_u32},
                                                                       {"npy", TokenFileFormat::npy},
                                                                       {"llmc", TokenFileFormat::llmc}};

struct Options {
  std::vector<std::string> inputs, val_inputs;
  std::string format = "auto", tokenizer, out;
  int64_t vocab_size = 0, end_of_text = -1, document_token = -1;
  ImportOptions import;
};

Json describe(const TokenSetInfo& info) {
  Json part;
  part["tokens"] = info.tokens;
  part["documents"] = info.documents;
  part["text_bytes"] = info.text_bytes;
  return part;
}

std::vector<Path> files_outside(const std::vector<std::string>& inputs, const std::string& out) {
  std::vector<Path> files;
  for (const std::string& input : inputs) {
    if (input.empty()) throw UsageError("the name of an input is empty");
    for (Path& file : token_files_of(input)) files.push_back(std::move(file));
  }
  for (const Path& file : files) {
    if (lies_below(file, out)) throw UsageError(file.string() + ": lies in --out " + out + ", which is written anew");
  }
  return files;
}

int import(Options& o, const CommonFlags& flags) {
  if (o.tokenizer.empty() == (o.vocab_size == 0)) {
    throw UsageError("one of --tokenizer and --vocab-size is needed: what the ids mean, or how many there are");
  }
  if (!o.tokenizer.empty() && o.end_of_text >= 0)
    throw UsageError("--end-of-text goes with --vocab-size: a tokenizer knows its own");
  if (o.vocab_size > 0 && o.end_of_text >= o.vocab_size) {
    throw UsageError(
        fmt::format("--end-of-text {} is outside the vocabulary of --vocab-size {}", o.end_of_text, o.vocab_size));
  }
  if (o.import.val_fraction > 0 && !o.val_inputs.empty())
    throw UsageError("--val and --val-fraction: one says what is for validation");
  for (const auto& [name, format] : kFormats) {
    if (name == o.format) o.import.format = format;
  }
  o.import.inputs = files_outside(o.inputs, o.out);
  if (!o.val_inputs.empty()) o.import.val_inputs = files_outside(o.val_inputs, o.out);
  o.import.document_token = static_cast<int32_t>(o.document_token);

  std::optional<Tokenizer> tokenizer;
  if (!o.tokenizer.empty()) tokenizer = open_tokenizer(o.tokenizer, "", -1);
  TokenSetInfo vocabulary;
  vocabulary.vocab_size = o.vocab_size;
  vocabulary.end_of_text = static_cast<int32_t>(o.end_of_text);
  const SplitWriter::Result result = import_tokens(tokenizer ? &*tokenizer : nullptr, vocabulary, o.import, o.out);
  if (flags.json) {
    print(Json(Json::Object{{"out", o.out}, {"train", describe(result.train)}, {"val", describe(result.val)}}).dump());
    return 0;
  }
  print(fmt::format("{}: train {} tokens in {} documents, val {} tokens in {} documents", o.out, result.train.tokens,
                    result.train.documents, result.val.tokens, result.val.documents));
  return 0;
}

}  // namespace

void add_import_command(Command& group) {
  auto o = std::make_shared<Options>();
  Command c = group.add_command("import", "Token ids of other programs to token shards",
                                "loam data import --input train.bin --val val.bin --tokenizer gpt2 --out data",
                                [o](const CommonFlags& flags) { return import(*o, flags); });
  c.add_option("--input", o->inputs, "flat .bin files, .npy, or llm.c's .bin; of a directory those named .bin or .npy")
      .required();
  std::vector<std::string> names;
  for (const auto& [name, format] : kFormats) names.push_back(name);
  c.add_option("--format", o->format, "of the files; auto: by their first bytes").one_of(names);
  c.add_option("--tokenizer", o->tokenizer, "TOKENIZER that made the ids; makes bits a byte and samples possible");
  add_integer(c, "--vocab-size", o->vocab_size, "number of ids, without a tokenizer", 0, (int64_t{1} << 31) - 1);
  add_integer(c, "--end-of-text", o->end_of_text, "id that ends a text, without a tokenizer; -1: none", -1,
              (int64_t{1} << 31) - 1);
  c.add_option("--val", o->val_inputs, "files for validation");
  add_number(c, "--val-fraction", o->import.val_fraction, "share of the documents kept for validation", 0, 0.9);
  add_integer(c, "--doc-token", o->document_token, "id between documents; -1: the one that ends a text", -1,
              (int64_t{1} << 31) - 1);
  c.add_option("--out", o->out, "new directory").required();
  c.add_flag("--force", o->import.force, "replace --out");
}

}  // namespace loam
