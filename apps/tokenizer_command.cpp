// `loam tokenizer train|encode|decode|count|info`.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "apps/command.h"
#include "apps/open_model.h"
#include "loam/base/clock.h"
#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/data/document.h"
#include "loam/text/tokenizer_files.h"

namespace loam {

void add_encode_commands(CLI::App& group);
void add_decode_command(CLI::App& group);

namespace {

struct TrainOptions {
  std::vector<std::string> inputs, specials;
  std::string out, pattern = "gpt2", type = "bpe", text_key = "text", separator;
  int64_t vocab_size = 8192, min_frequency = 2;
  bool force = false;
};

// Shards need a token between documents, so there is one even if --special names others only.
void add_end_of_text(std::vector<std::string>& specials) {
  for (const char* known : {"<|endoftext|>", "</s>", "<|end_of_text|>"}) {
    if (std::find(specials.begin(), specials.end(), known) != specials.end()) return;
  }
  specials.push_back("<|endoftext|>");
}

int train(TrainOptions o, const CommonFlags& flags) {
  add_end_of_text(o.specials);
  if (o.type != "bpe") throw UsageError("--type " + o.type + ": only bpe is there");
  const Path out = o.out;
  AtomicDirectory directory(out, o.force);
  BpeTrainer trainer({.vocab_size = o.vocab_size,
                      .special_tokens = o.specials,
                      .pretokenizer = parse_pretokenizer(o.pattern),
                      .threads = flags.threads,
                      .min_frequency = o.min_frequency});
  Stopwatch watch;
  DocumentReader reader(expand_inputs(o.inputs), {.text_key = o.text_key, .separator = o.separator});
  Progress progress("counting", reader.input_bytes(), "bytes");
  std::vector<std::string> texts;
  size_t bytes = 0;
  const auto count = [&] {
    trainer.add_documents({texts.begin(), texts.end()});
    progress.advance(static_cast<int64_t>(bytes));
    texts.clear();
    bytes = 0;
  };
  for (Document document; reader.next(document);) {
    bytes += document.text.size();
    texts.push_back(std::move(document.text));
    if (bytes >= size_t{16} << 20) count();
  }
  count();
  progress.finish();
  LOAM_CHECK(trainer.total_bytes() > 0, "tokenizer train: the input holds no text");
  BpeModel model = make_bpe_model(trainer.train(), o.specials, parse_pretokenizer(o.pattern));
  // The token between documents also starts every text: docs/decisions/0002.
  for (const SpecialToken& special : model.specials) {
    if (special.text == "<|endoftext|>") model.bos_id = special.id;
  }
  const Tokenizer tokenizer(std::move(model));
  save_tokenizer(tokenizer, directory.path());
  directory.commit();
  Json report;
  report["vocab_size"] = tokenizer.vocab_size();
  report["merges"] = static_cast<int64_t>(tokenizer.bpe()->merges.size());
  report["bytes"] = trainer.total_bytes();
  report["distinct_pieces"] = trainer.distinct_pieces();
  report["seconds"] = watch.seconds();
  report["out"] = o.out;
  print(flags.json ? report.dump()
                   : fmt::format("{}: {} tokens from {} of text ({} distinct pieces) in {}", o.out,
                                 tokenizer.vocab_size(), format_bytes(static_cast<double>(trainer.total_bytes())),
                                 trainer.distinct_pieces(), format_duration(watch.seconds())));
  return 0;
}

int info(const std::string& name, const CommonFlags& flags) {
  const Tokenizer tokenizer = open_tokenizer(name, "", -1);
  int64_t longest = 0, longest_id = -1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto& tokens = tokenizer.bpe() ? tokenizer.bpe()->tokens : tokenizer.spm()->tokens;
    const bool exists = !tokens[static_cast<size_t>(id)].empty() && !tokenizer.is_special(id);
    if (exists && static_cast<int64_t>(tokenizer.token_bytes(id).size()) > longest) {
      longest = static_cast<int64_t>(tokenizer.token_bytes(id).size());
      longest_id = id;
    }
  }
  Json report;
  report["kind"] = tokenizer.bpe() ? "byte-level BPE" : "SentencePiece BPE";
  report["vocab_size"] = tokenizer.vocab_size();
  if (tokenizer.bpe()) report["merges"] = static_cast<int64_t>(tokenizer.bpe()->merges.size());
  if (tokenizer.bpe()) report["pattern"] = std::string(pretokenizer_name(tokenizer.bpe()->pretokenizer));
  report["longest_token"] = longest_id < 0 ? "" : tokenizer.token_bytes(static_cast<int32_t>(longest_id));
  report["longest_token_bytes"] = longest;
  report["bos_id"] = int64_t{tokenizer.bos_id()};
  report["end_of_text_id"] = int64_t{tokenizer.end_of_text_id()};
  report["fingerprint"] = tokenizer.fingerprint();
  if (flags.json) {
    print(report.dump());
  } else {
    for (const auto& [key, value] : report.as_object()) print(fmt::format("{:<20} {}", key, value.dump()));
  }
  return 0;
}

void add_train(CLI::App& group) {
  auto o = std::make_shared<TrainOptions>();
  CLI::App* c = add_command(group, "train", "Learn a tokenizer from text",
                            "loam tokenizer train --input corpus.jsonl --vocab-size 8192 --out tok",
                            [o](const CommonFlags& flags) { return train(*o, flags); });
  c->add_option("--input", o->inputs, "text or JSONL files, directories, patterns, or -")->required();
  c->add_option("--out", o->out, "new directory")->required();
  c->add_option("--vocab-size", o->vocab_size, "tokens, the 256 bytes and the special tokens included")
      ->capture_default_str();
  c->add_option("--special", o->specials,
                "special token; may be repeated; <|endoftext|> is added unless an end token is among them")
      ->allow_extra_args(false)
      ->capture_default_str();
  c->add_option("--pattern", o->pattern, "how text is cut into pieces")->capture_default_str();
  c->add_option("--type", o->type, "kind of tokenizer")->capture_default_str();
  c->add_option("--min-frequency", o->min_frequency, "pairs seen less often are not merged")->capture_default_str();
  c->add_option("--text-key", o->text_key, "member of JSONL objects that holds the text")->capture_default_str();
  c->add_option("--doc-separator", o->separator, "line between documents of plain text");
  c->add_flag("--force", o->force, "replace --out");
}

}  // namespace

void add_tokenizer_commands(CLI::App& app) {
  CLI::App* group = add_command_group(app, "tokenizer", "Train and use tokenizers");
  add_train(*group);
  add_encode_commands(*group);
  add_decode_command(*group);
  auto name = std::make_shared<std::string>();
  CLI::App* c = add_command(*group, "info", "Facts about a tokenizer", "loam tokenizer info --tokenizer tok",
                            [name](const CommonFlags& flags) { return info(*name, flags); });
  c->add_option("--tokenizer", *name, "TOKENIZER")->required();
}

}  // namespace loam
