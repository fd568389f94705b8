// `loam tokenizer decode`.
#include <CLI/CLI.hpp>
#include <cstring>
#include <functional>
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "loam/base/interrupt.h"
#include "loam/text/tokenizer_stream.h"

namespace loam {
namespace {

struct Options {
  std::string tokenizer, format = "text";
  std::vector<std::string> inputs;
};

using Sink = std::function<void(std::string_view)>;

// Ids as little-endian numbers of `width` bytes.
StreamCounts decode_raw(const Tokenizer& tokenizer, ByteSource& source, size_t width, const Sink& sink) {
  StreamCounts counts;
  std::vector<char> buffer(size_t{1} << 20);
  std::string held, text;
  while (const int64_t n = source.read(buffer)) {
    check_interrupt();
    held.append(buffer.data(), static_cast<size_t>(n));
    size_t at = 0;
    for (; at + width <= held.size(); at += width) {
      uint32_t id = 0;
      std::memcpy(&id, held.data() + at, width);
      text += tokenizer.token_bytes(static_cast<int32_t>(id));
      ++counts.tokens;
    }
    held.erase(0, at);
    counts.bytes += static_cast<int64_t>(text.size());
    sink(text);
    text.clear();
  }
  if (!held.empty()) {
    fail(ErrorCode::kBadFormat, "{}: {} bytes are left over, not a whole id of {}", source.name(), held.size(), width);
  }
  return counts;
}

// Bytes come out as they are: a text that ends inside a character stays as it is. In JSON, which holds only Unicode,
// such bytes become U+FFFD.
int decode(const Options& o, const CommonFlags& flags) {
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, "", -1);
  const std::vector<Path> files = files_of(o.inputs);
  OutputProgress progress("decoding", total_bytes(files), "bytes");
  for (const Path& file : files) {
    const auto source = open_counted(file, progress);
    std::string text;
    const Sink sink = [&](std::string_view bytes) { flags.json ? void(text += bytes) : write_output(bytes); };
    const StreamCounts counts = o.format == "text" ? decode_stream(tokenizer, *source, sink)
                                                   : decode_raw(tokenizer, *source, o.format == "u16" ? 2 : 4, sink);
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

void add_decode_command(CLI::App& group) {
  auto o = std::make_shared<Options>();
  CLI::App* c = add_command(group, "decode", "Token ids to bytes",
                            "loam tokenizer encode --tokenizer tok a.txt | loam tokenizer decode --tokenizer tok",
                            [o](const CommonFlags& flags) { return decode(*o, flags); });
  c->add_option("--tokenizer", o->tokenizer, "TOKENIZER")->required();
  add_files(*c, o->inputs, "files");
  c->add_option("--format", o->format, "how the ids are written")
      ->check(CLI::IsMember({"text", "u16", "u32"}))
      ->capture_default_str();
}

}  // namespace loam
