// `loam tokenizer encode` and `loam tokenizer count`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/command.h"
#include "apps/open_model.h"
#include "loam/base/interrupt.h"
#include "loam/data/document.h"

namespace loam {
namespace {

struct Options {
  std::string tokenizer, format = "text", text_key = "text";
  std::vector<std::string> allow_special, inputs;
};

DocumentReaderOptions reader_options(const std::string& text_key) {
  DocumentReaderOptions options;
  options.text_key = text_key;
  return options;
}

void write_stdout(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, stdout) != bytes) fail(ErrorCode::kIo, "standard output: cannot write");
}

SpecialPolicy policy_of(const Tokenizer& tokenizer, const std::vector<std::string>& allowed) {
  if (allowed.empty() || allowed == std::vector<std::string>{"none"}) return SpecialPolicy::none();
  if (allowed == std::vector<std::string>{"all"}) return SpecialPolicy::all();
  for (const std::string& name : allowed) {
    if (tokenizer.special_id(name) < 0)
      throw UsageError("--allow-special " + name + ": the tokenizer has no such special token");
  }
  return SpecialPolicy::only(allowed);
}

// Raw ids of 2 or 4 bytes, or numbers separated by spaces.
void write_ids(const std::vector<int32_t>& ids, const std::string& format, bool& first) {
  if (format == "text") {
    std::string line;
    for (int32_t id : ids) {
      if (!first) line += ' ';
      first = false;
      line += std::to_string(id);
    }
    write_stdout(line.data(), line.size());
  } else if (format == "u16") {
    const std::vector<uint16_t> narrow(ids.begin(), ids.end());
    write_stdout(narrow.data(), 2 * narrow.size());
  } else {
    write_stdout(ids.data(), 4 * ids.size());
  }
}

std::vector<Path> inputs_of(const Options& o) {
  return expand_inputs(o.inputs.empty() ? std::vector<std::string>{"-"} : o.inputs);
}

// Calls `take` with the ids of the inputs, taken as one stream of bytes, as they become certain.
int64_t encode_stream(const Tokenizer& tokenizer, const Options& o,
                      const std::function<void(const std::vector<int32_t>&)>& take) {
  StreamEncoder encoder(tokenizer, policy_of(tokenizer, o.allow_special));
  std::vector<char> buffer(size_t{1} << 20);
  std::vector<int32_t> ids;
  int64_t bytes = 0;
  for (const Path& input : inputs_of(o)) {
    const auto source = open_input(input);
    while (const int64_t n = source->read(buffer)) {
      check_interrupt();
      bytes += n;
      encoder.push({buffer.data(), static_cast<size_t>(n)}, ids);
      take(ids);
      ids.clear();
    }
  }
  encoder.finish(ids);
  take(ids);
  return bytes;
}

int encode(const Options& o) {
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, "", -1);
  if (o.format == "u16" && tokenizer.vocab_size() > 65536)
    throw UsageError("--format u16: the vocabulary has more than 65536 ids");
  if (o.format == "jsonl") {
    DocumentReader reader(inputs_of(o), reader_options(o.text_key));
    for (Document document; reader.next(document);) {
      Json line = Json::array();
      for (int32_t id : tokenizer.encode(document.text, policy_of(tokenizer, o.allow_special)))
        line.push_back(int64_t{id});
      print(line.dump());
    }
    return 0;
  }
  bool first = true;
  encode_stream(tokenizer, o, [&](const std::vector<int32_t>& ids) { write_ids(ids, o.format, first); });
  if (o.format == "text") write_stdout("\n", 1);
  return 0;
}

int count(const Options& o, const CommonFlags& flags) {
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, "", -1);
  int64_t tokens = 0;
  const int64_t bytes =
      encode_stream(tokenizer, o, [&](const std::vector<int32_t>& ids) { tokens += static_cast<int64_t>(ids.size()); });
  Json report;
  report["tokens"] = tokens;
  report["bytes"] = bytes;
  report["bytes_per_token"] = tokens ? static_cast<double>(bytes) / static_cast<double>(tokens) : 0.0;
  print(flags.json ? report.dump()
                   : fmt::format("{} tokens, {} bytes, {:.3f} bytes a token", tokens, bytes,
                                 report.at("bytes_per_token").as_double()));
  return 0;
}

CLI::App* add(CLI::App& group, const std::string& name, const std::string& help, const std::string& example,
              std::shared_ptr<Options> o, std::function<int(const CommonFlags&)> run) {
  CLI::App* c = add_command(group, name, help, example, std::move(run));
  c->add_option("--tokenizer", o->tokenizer, "TOKENIZER")->required();
  c->add_option("F", o->inputs, "files; default: standard input");
  return c;
}

}  // namespace

void add_encode_commands(CLI::App& group) {
  auto o = std::make_shared<Options>();
  CLI::App* c = add(group, "encode", "Text to token ids", "loam tokenizer encode --tokenizer tok README.md", o,
                    [o](const CommonFlags&) { return encode(*o); });
  c->add_option("--format", o->format, "numbers, one array a document, or raw little-endian ids")
      ->check(CLI::IsMember({"text", "jsonl", "u16", "u32"}))
      ->capture_default_str();
  c->add_option("--allow-special", o->allow_special,
                "special token that text may produce, or none, or all; may be repeated")
      ->allow_extra_args(false);
  c->add_option("--text-key", o->text_key, "member of JSONL objects that holds the text")->capture_default_str();
  auto n = std::make_shared<Options>();
  c = add(group, "count", "Tokens, bytes, and bytes a token", "loam tokenizer count --tokenizer tok README.md", n,
          [n](const CommonFlags& flags) { return count(*n, flags); });
  c->add_option("--allow-special", n->allow_special,
                "special token that text may produce, or none, or all; may be repeated")
      ->allow_extra_args(false);
}

}  // namespace loam
