// `loam tokenizer train`.
#include <algorithm>
#include <memory>
#include <set>

#include "apps/commands.h"
#include "apps/options.h"
#include "loam/base/clock.h"
#include "loam/base/interrupt.h"
#include "loam/text/bpe_train.h"
#include "loam/text/tokenizer_files.h"
#include "loam/text/tokenizer_stream.h"

namespace loam {
namespace {

constexpr size_t kCountedAtOnce = size_t{16} << 20;  // bytes of text
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;

struct Options {
  std::vector<std::string> inputs, specials;
  std::string out, pattern = "gpt2", type = "bpe", held_out;
  DocumentReaderOptions reader;
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

BpeTrainOptions checked(const Options& o, int threads) {
  std::set<std::string> seen;
  for (const std::string& special : o.specials) {
    if (special.empty()) throw UsageError("--special: the token is empty");
    if (!seen.insert(special).second) throw UsageError("--special " + special + ": given twice");
  }
  const int64_t specials = static_cast<int64_t>(o.specials.size());
  if (o.vocab_size < 256 + specials) {
    throw UsageError(fmt::format("--vocab-size {}: must be at least {}, for the 256 bytes and {} special token{}",
                                 o.vocab_size, 256 + specials, specials, specials == 1 ? "" : "s"));
  }
  BpeTrainOptions options;
  options.vocab_size = o.vocab_size;
  options.special_tokens = o.specials;
  options.threads = threads;
  options.min_frequency = o.min_frequency;
  as_usage("--pattern " + o.pattern, [&] { options.pretokenizer = parse_pretokenizer(o.pattern); });
  if (o.type == "char") options.pretokenizer = character_pretokenizer();
  return options;
}

// Counts all texts of the reader; returns how many documents there were.
int64_t count_documents(BpeTrainer& trainer, DocumentReader& reader) {
  Progress progress("counting", reader.input_bytes(), "bytes");
  std::vector<std::string> texts;
  size_t bytes = 0;
  int64_t documents = 0;
  const auto count = [&] {
    trainer.add_documents({texts.begin(), texts.end()});
    progress.advance(static_cast<int64_t>(bytes));
    documents += static_cast<int64_t>(texts.size());
    texts.clear();
    bytes = 0;
  };
  for (Document document; reader.next(document);) {
    check_interrupt();
    bytes += document.text.size();
    texts.push_back(std::move(document.text));
    if (bytes >= kCountedAtOnce) count();
  }
  count();
  progress.finish();
  return documents;
}

TokenizerModel make_model(const Options& o, BpeTrainer& trainer) {
  const int64_t specials = static_cast<int64_t>(o.specials.size());
  TokenizerModel model = BpeModel();
  if (o.type == "char") {
    model = make_character_model(trainer.most_frequent(o.vocab_size - 256 - specials), o.specials);
  } else if (o.type == "word") {
    model =
        make_word_model(trainer.most_frequent(o.vocab_size - 1 - specials), o.specials, parse_pretokenizer(o.pattern));
  } else {
    const std::vector<Merge> merges = o.type == "byte" ? std::vector<Merge>() : trainer.train();
    model = make_bpe_model(merges, o.specials, parse_pretokenizer(o.pattern));
  }
  // The token between documents also starts every text: docs/decisions/0002.
  TokenizerRules& rules = std::visit([](auto& m) -> TokenizerRules& { return m; }, model);
  for (const SpecialToken& special : rules.specials) {
    if (special.text == "<|endoftext|>") rules.frame = begins_with(special.id);
  }
  return model;
}

double bytes_per_token(const Tokenizer& tokenizer, const Path& file) {
  const auto source = open_input(file);
  const StreamCounts counts = encode_stream(tokenizer, *source, SpecialPolicy::none(), [](std::span<const int32_t>) {});
  LOAM_CHECK(counts.tokens > 0, "{}: holds no text", file.string());
  return static_cast<double>(counts.bytes) / static_cast<double>(counts.tokens);
}

int train(Options o, const CommonFlags& flags) {
  add_end_of_text(o.specials);
  BpeTrainer trainer(checked(o, flags.threads));
  if (!o.held_out.empty()) open_input(o.held_out);  // a name that is wrong is known before the work
  AtomicDirectory directory(o.out, o.force, {"tokenizer.json", "vocab.json", "merges.txt"});
  Stopwatch watch;
  DocumentReader reader(files_of(o.inputs), o.reader);
  const int64_t documents = count_documents(trainer, reader);
  warn_of_bad_lines(reader);
  LOAM_CHECK(trainer.total_bytes() > 0, "tokenizer train: the input holds no text");
  const Tokenizer tokenizer(make_model(o, trainer));
  const double held_out = o.held_out.empty() ? 0 : bytes_per_token(tokenizer, o.held_out);
  save_tokenizer(tokenizer, directory.path());
  directory.commit();
  Json report;
  report["vocab_size"] = tokenizer.vocab_size();
  report["type"] = o.type;
  if (tokenizer.bpe()) report["merges"] = static_cast<int64_t>(tokenizer.bpe()->merges.size());
  report["bytes"] = trainer.total_bytes();
  report["documents"] = documents;
  report["bad_lines"] = reader.bad_lines();
  report["distinct_pieces"] = trainer.distinct_pieces();
  report["seconds"] = watch.seconds();
  if (!o.held_out.empty()) report["held_out_bytes_per_token"] = held_out;
  report["out"] = o.out;
  print(flags.json ? report.dump()
                   : fmt::format("{}: {} tokens from {} of text ({} distinct pieces) in {}", o.out,
                                 tokenizer.vocab_size(), format_bytes(static_cast<double>(trainer.total_bytes())),
                                 trainer.distinct_pieces(), format_duration(watch.seconds())));
  if (!flags.json && !o.held_out.empty()) print(fmt::format("{}: {:.3f} bytes a token", o.held_out, held_out));
  return 0;
}

}  // namespace

void add_tokenizer_train_command(Command& group) {
  auto o = std::make_shared<Options>();
  Command c = group.add_command("train", "Learn a tokenizer from text",
                                "loam tokenizer train --input corpus.jsonl --vocab-size 8192 --out tok",
                                [o](const CommonFlags& flags) { return train(*o, flags); });
  add_input(c, o->inputs);
  c.add_option("--out", o->out, "new directory").required();
  add_integer(c, "--vocab-size", o->vocab_size, "tokens, the 256 bytes and the special tokens included", 1,
              kMaxVocabulary);
  c.add_option("--special", o->specials,
               "special token; may be repeated; <|endoftext|> is added unless an end token is among them")
      .one_word_each();
  c.add_option("--pattern", o->pattern,
               "how text is cut into pieces: gpt2, cl100k, o200k, llama3, qwen2, ... (as in GGUF)")
      .show_default(o->pattern);
  c.add_option("--type", o->type, "bpe; or byte, char or word, for comparison")
      .one_of({"bpe", "byte", "char", "word"})
      .show_default(o->type);
  add_integer(c, "--min-frequency", o->min_frequency, "pairs seen less often are not merged", 1);
  c.add_option("--held-out", o->held_out,
               "text that the tokenizer does not see: its bytes a token are shown at the end");
  add_text_key(c, o->reader);
  add_document_separator(c, o->reader);
  c.add_flag("--force", o->force, "replace --out");
}

}  // namespace loam
