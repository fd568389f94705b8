// `loam tokenizer count`.
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "apps/text_options.h"
#include "loam/text/tokenizer_stream.h"

namespace loam {
namespace {

int count(const TextOptions& o, const CommonFlags& flags) {
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, "", -1);
  const SpecialPolicy policy = o.policy(tokenizer);
  const std::vector<Path> files = files_of(o.inputs);
  OutputProgress progress("counting", total_bytes(files), "bytes");
  StreamCounts total;
  int64_t documents = 0;
  const auto count_document = [&](const Document& document) {
    total.bytes += static_cast<int64_t>(document.text.size());
    total.tokens += static_cast<int64_t>(tokenizer.encode(document.text, policy).size());
    ++documents;
  };
  for_each_text(o, files, progress, count_document, [&](ByteSource& source) {
    const StreamCounts one = encode_stream(
        tokenizer, source, policy, [](std::span<const int32_t>) {}, flags.threads);
    total.bytes += one.bytes;
    total.tokens += one.tokens;
    documents += one.bytes > 0;
  });
  progress.finish();
  const double ratio = total.tokens ? static_cast<double>(total.bytes) / static_cast<double>(total.tokens) : 0.0;
  const Json report(Json::Object{
      {"tokens", total.tokens}, {"bytes", total.bytes}, {"documents", documents}, {"bytes_per_token", ratio}});
  print(flags.json ? report.dump()
                   : fmt::format("{} tokens, {} bytes, {:.3f} bytes a token, {} document{}", total.tokens, total.bytes,
                                 ratio, documents, documents == 1 ? "" : "s"));
  return 0;
}

}  // namespace

void add_count_command(Command& group) {
  auto o = std::make_shared<TextOptions>();
  Command c =
      group.add_command("count", "Tokens, bytes, and bytes a token", "loam tokenizer count --tokenizer tok README.md",
                        [o](const CommonFlags& flags) { return count(*o, flags); });
  add_text(c, *o);
}

}  // namespace loam
