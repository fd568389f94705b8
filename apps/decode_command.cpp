// `loam tokenizer decode`.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

#include "apps/command.h"
#include "apps/open_model.h"
#include "loam/base/interrupt.h"

namespace loam {
namespace {

struct Options {
  std::string tokenizer, format = "text";
  std::vector<std::string> inputs;
};

void write_stdout(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, stdout) != bytes) fail(ErrorCode::kIo, "standard output: cannot write");
}

int32_t parse_id(std::string_view word) {
  int32_t id = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
  LOAM_CHECK(error == std::errc() && end == word.data() + word.size(), "tokenizer decode: {} is not a token id", word);
  return id;
}

// Bytes come out as they are: a text that ends inside a character stays as it is.
int decode(const Options& o) {
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, "", -1);
  for (const Path& input : expand_inputs(o.inputs.empty() ? std::vector<std::string>{"-"} : o.inputs)) {
    const auto source = open_input(input);
    std::vector<char> buffer(size_t{1} << 20);
    std::string held;
    const auto put = [&](int32_t id) {
      const std::string bytes = tokenizer.decode(std::span(&id, 1));
      write_stdout(bytes.data(), bytes.size());
    };
    const size_t width = o.format == "u16" ? 2 : 4;
    while (const int64_t n = source->read(buffer)) {
      check_interrupt();
      held.append(buffer.data(), static_cast<size_t>(n));
      size_t at = 0;
      if (o.format == "text") {
        for (size_t end; (end = held.find_first_of(" \t\n\r,[]", at)) != std::string::npos; at = end + 1) {
          if (end > at) put(parse_id(std::string_view(held).substr(at, end - at)));
        }
      } else {
        for (; at + width <= held.size(); at += width) {
          int32_t id = 0;
          std::memcpy(&id, held.data() + at, width);
          put(id);
        }
      }
      held.erase(0, at);
    }
    if (o.format == "text" && !held.empty()) put(parse_id(held));
    LOAM_CHECK(o.format == "text" || held.empty(), "{}: {} bytes are left over, not a whole id", source->name(),
               held.size());
  }
  return 0;
}

}  // namespace

void add_decode_command(CLI::App& group) {
  auto o = std::make_shared<Options>();
  CLI::App* c = add_command(group, "decode", "Token ids to bytes",
                            "loam tokenizer encode --tokenizer tok a.txt | loam tokenizer decode --tokenizer tok",
                            [o](const CommonFlags&) { return decode(*o); });
  c->add_option("--tokenizer", o->tokenizer, "TOKENIZER")->required();
  c->add_option("F", o->inputs, "files; default: standard input");
  c->add_option("--format", o->format, "how the ids are written")
      ->check(CLI::IsMember({"text", "u16", "u32"}))
      ->capture_default_str();
}

}  // namespace loam
