// `loam tokenizer encode`.
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "apps/text_options.h"
#include "loam/text/tokenizer_stream.h"

namespace loam {
namespace {

using Ids = std::span<const int32_t>;

struct Options {
  TextOptions text;
  std::string format = "text";
};

Json as_json(Ids ids) {
  Json list = Json::array();
  for (int32_t id : ids) list.push_back(int64_t{id});
  return list;
}

// Writes the ids of one text, which may come in parts.
class IdWriter {
 public:
  explicit IdWriter(std::string format) : format_(std::move(format)) {}
  void write(Ids ids) {
    if (format_ == "u16") {
      const std::vector<uint16_t> narrow(ids.begin(), ids.end());
      write_output({reinterpret_cast<const char*>(narrow.data()), 2 * narrow.size()});
    } else if (format_ == "u32") {
      write_output({reinterpret_cast<const char*>(ids.data()), 4 * ids.size()});
    } else {
      std::string words;
      for (int32_t id : ids) {
        if (!first_) words += ' ';
        first_ = false;
        words += std::to_string(id);
      }
      write_output(words);
    }
  }
  void end_text() {
    first_ = true;
    if (format_ == "text") write_output("\n");
  }

 private:
  std::string format_;
  bool first_ = true;
};

int encode(const Options& o, const CommonFlags& flags) {
  const bool documents = flags.json || o.format == "jsonl";
  if (flags.json && o.format != "text" && o.format != "jsonl")
    throw UsageError("--json and --format " + o.format + " exclude each other");
  if (documents && o.text.raw) throw UsageError("--raw knows no documents, which JSON output lists");
  const Tokenizer tokenizer = open_tokenizer(o.text.tokenizer, "", -1);
  if (o.format == "u16" && tokenizer.vocab_size() > 65536)
    throw UsageError("--format u16: the vocabulary has more than 65536 ids");
  const SpecialPolicy policy = o.text.policy(tokenizer);
  const std::vector<Path> files = files_of(o.text.inputs);
  OutputProgress progress("encoding", total_bytes(files), "bytes");
  IdWriter writer(o.format);
  const auto encode_document = [&](const Document& document) {
    const std::vector<int32_t> ids = tokenizer.encode(document.text, policy);
    if (flags.json) {
      print(Json(Json::Object{{"id", document.id}, {"tokens", static_cast<int64_t>(ids.size())}, {"ids", as_json(ids)}})
                .dump());
    } else if (o.format == "jsonl") {
      print(as_json(ids).dump());
    } else {
      writer.write(ids);
      writer.end_text();
    }
  };
  if (documents) {
    for_each_document(o.text.reader, files, progress, encode_document);
  } else {
    for_each_text(o.text, files, progress, encode_document, [&](ByteSource& source) {
      encode_stream(
          tokenizer, source, policy, [&](Ids ids) { writer.write(ids); }, flags.threads);
      writer.end_text();
    });
  }
  progress.finish();
  return 0;
}

}  // namespace

void add_encode_command(Command& group) {
  auto o = std::make_shared<Options>();
  Command c = group.add_command("encode", "Text to token ids", "loam tokenizer encode --tokenizer tok README.md",
                                [o](const CommonFlags& flags) { return encode(*o, flags); });
  add_text(c, o->text);
  c.add_option("--format", o->format, "numbers, one array a document, or raw little-endian ids")
      .one_of({"text", "jsonl", "u16", "u32"})
      .show_default(o->format);
}

}  // namespace loam
