// `loam tokenizer convert`: a tokenizer in the files of another program.
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "loam/base/log.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

struct Options {
  std::string tokenizer, out;
  bool force = false;
};

void write_ranks(const Tokenizer& tokenizer, const Options& o) {
  const std::string ranks = tiktoken_ranks(tokenizer);
  std::error_code error;
  const bool exists = std::filesystem::exists(std::filesystem::symlink_status(o.out, error));
  if (exists && !(o.force && std::filesystem::is_regular_file(o.out, error)))
    fail(ErrorCode::kAlreadyExists, "{}: is there already{}", o.out,
         o.force ? ", and no file" : "; --force replaces it");
  write_file_atomic(o.out, ranks);
  const BpeModel& model = *tokenizer.bpe();
  const bool plain = model.normalizer.empty() && model.space.prefix == SpaceRule::Prefix::kNever;
  log_warn("{}: the file has no place for the pattern ({}), for {} special tokens{}", o.out,
           model.pretokenizer.description(), model.specials.size(),
           plain ? "" : " and for what is done to text before it is cut");
}

void write_directory(const Tokenizer& tokenizer, const Options& o) {
  AtomicDirectory directory(o.out, o.force, {"tokenizer.json", "vocab.json", "merges.txt"});
  save_tokenizer(tokenizer, directory.path());
  const Tokenizer written = load_tokenizer(directory.path());
  LOAM_CHECK(written.vocab_size() == tokenizer.vocab_size(), "{}: reads back with other tokens", o.out);
  directory.commit();
  // SentencePiece's own way is none that the format knows.
  if (written.fingerprint() != tokenizer.fingerprint()) log_warn("{}: the nearest that tokenizer.json can say", o.out);
}

int convert(const Options& o, const CommonFlags& flags) {
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, "", -1);
  const bool ranks = o.out.ends_with(".tiktoken");
  ranks ? write_ranks(tokenizer, o) : write_directory(tokenizer, o);
  const Json report(Json::Object{
      {"out", o.out}, {"form", ranks ? "tiktoken" : "tokenizer.json"}, {"vocab_size", tokenizer.vocab_size()}});
  print(flags.json ? report.dump() : fmt::format("{}: {} tokens", o.out, tokenizer.vocab_size()));
  return 0;
}

}  // namespace

void add_tokenizer_convert_command(Command& group) {
  auto o = std::make_shared<Options>();
  Command c = group.add_command("convert", "Write a tokenizer in the files of another program",
                                "loam tokenizer convert --tokenizer tokenizer.model --out tok",
                                [o](const CommonFlags& flags) { return convert(*o, flags); });
  c.add_option("--tokenizer", o->tokenizer, "TOKENIZER").required();
  c.add_option("--out", o->out,
               "new directory for tokenizer.json (and GPT-2's vocab.json and merges.txt); or a file of ranks, "
               "NAME.tiktoken")
      .required();
  c.add_flag("--force", o->force, "replace --out");
}

}  // namespace loam
