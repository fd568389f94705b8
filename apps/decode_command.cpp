// `loam tokenizer decode`.
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "loam/text/tokenizer_stream.h"

namespace loam {
namespace {

struct Options {
  std::string tokenizer, format = "text";
  std::vector<std::string> inputs;
};

IdFormat format_of(const std::string& name) {
  return name == "u16" ? IdFormat::kU16 : name == "u32" ? IdFormat::kU32 : IdFormat::kText;
}

// Bytes come out as they are: a text that ends inside a character stays as it is. In JSON, which holds only Unicode,
// such bytes become U+FFFD. Memory holds a block of the text, or with --json all that of one file.
int decode(const Options& o, const CommonFlags& flags) {
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, "", -1);
  const std::vector<Path> files = files_of(o.inputs);
  OutputProgress progress("decoding", total_bytes(files), "bytes");
  for (const Path& file : files) {
    const auto source = open_counted(file, progress);
    std::string text;
    const StreamCounts counts = decode_stream(tokenizer, *source, format_of(o.format), [&](std::string_view bytes) {
      flags.json ? void(text += bytes) : write_output(bytes);
    });
    if (flags.json) {
      print(
          Json(Json::Object{{"id", source->name()}, {"tokens", counts.tokens}, {"bytes", counts.bytes}, {"text", text}})
              .dump());
    }
  }
  progress.finish();
  return 0;
}

}  // namespace

void add_decode_command(Command& group) {
  auto o = std::make_shared<Options>();
  Command c = group.add_command("decode", "Token ids to bytes",
                                "loam tokenizer encode --tokenizer tok a.txt | loam tokenizer decode --tokenizer tok",
                                [o](const CommonFlags& flags) { return decode(*o, flags); });
  c.add_option("--tokenizer", o->tokenizer, "TOKENIZER").required();
  add_files(c, o->inputs, "files");
  c.add_option("--format", o->format, "how the ids are written").one_of({"text", "u16", "u32"}).show_default(o->format);
}

}  // namespace loam
