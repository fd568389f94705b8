// `loam tokenizer train`.
#include <algorithm>
#include <memory>
#include <set>

#include "apps/commands.h"
#include "apps/options.h"
#include "apps/piece_counting.h"
#include "loam/base/clock.h"
#include "loam/base/log.h"
#include "loam/data/text_source.h"
#include "loam/text/tokenizer_files.h"
#include "loam/text/tokenizer_stream.h"

namespace loam {
namespace {

constexpr int64_t kMaxVocabulary = 2'000'000;
constexpr int64_t kMinMemory = 1'000'000;

struct Options {
  std::vector<std::string> inputs, specials;
  std::string out, pattern = "gpt2", type = "bpe", held_out, counts;
  DocumentReaderOptions reader;
  int64_t vocab_size = 8192, min_frequency = 2, max_token_length = 0, limit_alphabet = 0;
  int64_t memory = 4'000'000'000, checkpoint_every = 1'000'000'000;
  bool force = false, resume = false;
};

// Shards need a token between documents, so there is one even if --special names others only.
void add_end_of_text(std::vector<std::string>& specials) {
  for (const char* known : {"<|endoftext|>", "</s>", "<|end_of_text|>"}) {
    if (std::find(specials.begin(), specials.end(), known) != specials.end()) return;
  }
  specials.push_back("<|endoftext|>");
}

// Where counts go when memory is full, and what a killed run leaves.
Path counts_directory(const Options& o) {
  if (!o.counts.empty()) return o.counts;
  Path beside = o.out;
  if (!beside.has_filename()) beside = beside.parent_path();
  return beside += ".counts";
}

void check_flags(const Options& o) {
  std::set<std::string> seen;
  for (const std::string& special : o.specials) {
    as_usage("--special " + special, [&] { check_special_token(special); });
    if (o.type == "word" && special == kUnknownWord) throw UsageError("--special <unk>: words have this token already");
    if (!seen.insert(special).second) throw UsageError("--special " + special + ": given twice");
  }
  const int64_t specials = static_cast<int64_t>(o.specials.size());
  if (o.vocab_size < 256 + specials) {
    throw UsageError(fmt::format("--vocab-size {}: must be at least {}, for the 256 bytes and {} special token{}",
                                 o.vocab_size, 256 + specials, specials, specials == 1 ? "" : "s"));
  }
  if (o.limit_alphabet > 0 && o.type != "char") {
    throw UsageError("--limit-alphabet: for --type char; the alphabet of the others is not of characters");
  }
  if (o.max_token_length > 0 && o.type != "bpe") throw UsageError("--max-token-length: for --type bpe");
  const Path out = std::filesystem::weakly_canonical(o.out), counts = std::filesystem::weakly_canonical(o.counts);
  if (!o.counts.empty() && std::mismatch(out.begin(), out.end(), counts.begin(), counts.end()).first == out.end())
    throw UsageError("--counts " + o.counts + ": lies in --out, which is made anew");
  const bool has_stdin = std::find(o.inputs.begin(), o.inputs.end(), "-") != o.inputs.end();
  if (o.resume && has_stdin) throw UsageError("--resume: standard input cannot be read a second time");
}

// A name, or a regular expression.
Pretokenizer pretokenizer_of(const Options& o) {
  if (o.type == "char") return character_pretokenizer();
  const bool regex = o.pattern.find_first_of("\\[](){}|+*?^$") != std::string::npos;
  return regex ? Pretokenizer({Split{o.pattern}}) : parse_pretokenizer(o.pattern);
}

BpeTrainOptions train_options(const Options& o, int threads) {
  BpeTrainOptions options;
  options.vocab_size = o.vocab_size;
  options.special_tokens = o.specials;
  options.threads = threads;
  options.min_frequency = o.min_frequency;
  options.max_token_length = o.max_token_length;
  options.memory = o.memory;
  options.directory = counts_directory(o);
  as_usage("--pattern " + o.pattern, [&] { options.pretokenizer = pretokenizer_of(o); });
  return options;
}

TokenizerModel make_model(const Options& o, BpeTrainer& trainer) {
  const int64_t specials = static_cast<int64_t>(o.specials.size());
  TokenizerModel model = BpeModel();
  if (o.type == "char") {
    const int64_t room = o.vocab_size - 256 - specials;
    const int64_t characters = o.limit_alphabet > 0 ? std::min(room, o.limit_alphabet) : room;
    model = make_character_model(trainer.most_frequent(characters), o.specials);
  } else if (o.type == "word") {
    model = make_word_model(trainer.most_frequent(o.vocab_size - 1 - specials), o.specials, pretokenizer_of(o));
  } else {
    const std::vector<Merge> merges = o.type == "byte" ? std::vector<Merge>() : trainer.train();
    model = make_bpe_model(merges, o.specials, pretokenizer_of(o));
  }
  // The token between documents also starts every text: docs/decisions/0002.
  TokenizerRules& rules = std::visit([](auto& m) -> TokenizerRules& { return m; }, model);
  for (const SpecialToken& special : rules.specials) {
    if (special.text == "<|endoftext|>") rules.frame = begins_with(special.id);
  }
  return model;
}

double bytes_per_token(const Tokenizer& tokenizer, const Path& file, const DocumentReaderOptions& options) {
  StreamCounts counts;
  if (is_jsonl_name(file)) {
    DocumentReader reader({file}, options);
    for (Document document; reader.next(document);) {
      counts.bytes += static_cast<int64_t>(document.text.size());
      counts.tokens += static_cast<int64_t>(tokenizer.encode(document.text, SpecialPolicy::none()).size());
    }
  } else {
    const auto source = open_text(file);
    counts = encode_stream(tokenizer, *source, SpecialPolicy::none(), [](std::span<const int32_t>) {});
  }
  LOAM_CHECK(counts.tokens > 0, "{}: holds no text", file.string());
  return static_cast<double>(counts.bytes) / static_cast<double>(counts.tokens);
}

// A name that is wrong is known before the work; a pipe is read once, at the end.
void check_held_out(const Options& o) {
  std::error_code error;
  if (o.held_out.empty() || o.held_out == "-" || std::filesystem::is_fifo(o.held_out, error)) return;
  open_text(o.held_out);
}

// What earlier runs have counted, or nothing.
Counted begin(const Options& o, BpeTrainer& trainer) {
  if (o.resume) {
    const std::optional<Json> position = trainer.resume();
    if (!position) {
      log_info("{}: no counts to resume from; counting begins anew", counts_directory(o).string());
      return {};
    }
    const Counted counted = Counted::from_json(*position);
    log_info("{}: {} of text are counted already", counts_directory(o).string(),
             format_bytes(static_cast<double>(trainer.total_bytes())));
    return counted;
  }
  if (trainer.has_checkpoint() && !o.force) {
    fail(ErrorCode::kAlreadyExists, "{}: counts of an earlier run; --resume goes on from them, --force counts anew",
         counts_directory(o).string());
  }
  trainer.discard();
  return {};
}

Tokenizer learn(const Options& o, BpeTrainer& trainer, const CountingInput& input, Counted& counted) {
  try {
    if (!counted.complete) count_documents(input, trainer, o.checkpoint_every, !o.counts.empty(), counted);
    LOAM_CHECK(trainer.total_bytes() > 0, "tokenizer train: the input holds no text");
    return Tokenizer(make_model(o, trainer));
  } catch (const Error&) {
    if (trainer.has_checkpoint()) log_warn("{}: --resume goes on from the counts there", counts_directory(o).string());
    throw;
  }
}

Json report_of(const Options& o, const BpeTrainer& trainer, const Tokenizer& tokenizer, const Counted& counted) {
  Json report;
  report["vocab_size"] = tokenizer.vocab_size();
  report["type"] = o.type;
  if (tokenizer.bpe()) report["merges"] = static_cast<int64_t>(tokenizer.bpe()->merges.size());
  report["bytes"] = trainer.total_bytes();
  report["documents"] = counted.documents;
  report["bad_lines"] = counted.bad_lines;
  report["distinct_pieces"] = trainer.distinct_pieces();
  report["dropped_pieces"] = trainer.dropped().pieces;
  report["dropped_occurrences"] = trainer.dropped().occurrences;
  return report;
}

int train(Options o, const CommonFlags& flags) {
  add_end_of_text(o.specials);
  check_flags(o);
  CountingInput input{files_of(o.inputs), o.reader};
  std::erase_if(input.files, [&](const Path& file) { return lies_below(file, counts_directory(o)); });
  BpeTrainOptions options = train_options(o, flags.threads);
  options.source = input.source();
  BpeTrainer trainer(std::move(options));
  check_held_out(o);
  AtomicDirectory directory(o.out, o.force, {"tokenizer.json", "vocab.json", "merges.txt"});
  const Stopwatch watch;
  Counted counted = begin(o, trainer);
  const Tokenizer tokenizer = learn(o, trainer, input, counted);
  const double held_out = o.held_out.empty() ? 0 : bytes_per_token(tokenizer, o.held_out, o.reader);
  Json report = report_of(o, trainer, tokenizer, counted);
  save_tokenizer(tokenizer, directory.path());
  LOAM_CHECK(load_tokenizer(directory.path()).vocab_size() == tokenizer.vocab_size(),
             "{}: reads back with other tokens", o.out);
  directory.commit();
  if (o.counts.empty()) trainer.discard();
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
               "how text is cut into pieces: gpt2, cl100k, o200k, llama3, qwen2, ... (as in GGUF), or a regex")
      .show_default(o->pattern);
  c.add_option("--type", o->type, "bpe; or byte, char or word, for comparison")
      .one_of({"bpe", "byte", "char", "word"})
      .show_default(o->type);
  add_integer(c, "--min-frequency", o->min_frequency, "pairs seen less often are not merged", 1);
  add_integer(c, "--max-token-length", o->max_token_length, "bpe: no token has more bytes; 0: any length", 0);
  add_integer(c, "--limit-alphabet", o->limit_alphabet,
              "char: at most so many characters, the most frequent; others are bytes; 0: those there is room for", 0);
  add_bytes(c, "--memory", o->memory,
            "for counts and merging; more counts go to disk; of more pieces, the rarest are left out", kMinMemory);
  c.add_option(
      "--counts", o->counts,
      "directory for counts, kept for --resume, also with another --vocab-size (default: OUT.counts, removed)");
  add_bytes(c, "--checkpoint-every", o->checkpoint_every, "of text; then counts go to disk, for --resume", 1);
  c.add_flag("--resume", o->resume, "go on from the counts of a run that was killed, or that kept them");
  c.add_option("--held-out", o->held_out,
               "text that the tokenizer does not see: its bytes a token are shown at the end");
  add_text_key(c, o->reader);
  add_document_separator(c, o->reader);
  c.add_flag("--force", o->force, "replace --out");
}

}  // namespace loam
