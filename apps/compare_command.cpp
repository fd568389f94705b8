// `loam tokenizer compare`: tokenizers side by side on one text.
#include <algorithm>
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "loam/base/clock.h"
#include "loam/base/interrupt.h"
#include "loam/data/text_source.h"
#include "loam/text/tokenizer_stream.h"

namespace loam {
namespace {

constexpr double kLeastSeconds = 0.3;  // a small text is encoded several times

struct Measured {
  StreamCounts counts;
  double bytes_per_second = 0;  // reading included; the best pass
};

Measured measure(const Tokenizer& tokenizer, const Path& file, int threads) {
  Measured measured;
  const Stopwatch all;
  do {
    const auto source = open_text(file);
    const Stopwatch watch;
    measured.counts = encode_stream(
        tokenizer, *source, SpecialPolicy::none(), [](std::span<const int32_t>) {}, threads);
    const double rate = static_cast<double>(measured.counts.bytes) / std::max(watch.seconds(), 1e-9);
    measured.bytes_per_second = std::max(measured.bytes_per_second, rate);
  } while (all.seconds() < kLeastSeconds);
  return measured;
}

int compare(const std::vector<std::string>& words, const CommonFlags& flags) {
  if (words.size() < 2) throw UsageError("name at least one TOKENIZER and, last, a file of text");
  const Path file = words.back();
  if (words.back() == "-") throw UsageError("the text is read more than once: name a file, not standard input");
  std::error_code error;
  if (std::filesystem::exists(file, error) && !std::filesystem::is_regular_file(file, error))
    throw UsageError(file.string() + ": the text is read more than once: name a regular file");
  std::vector<Tokenizer> tokenizers;  // all are opened before the work
  for (size_t i = 0; i + 1 < words.size(); ++i) tokenizers.push_back(open_tokenizer(words[i], "", -1));
  if (!flags.json)
    print(fmt::format("{:>12} {:>12} {:>10} {:>11} {:>11}  {}", "bytes/token", "tokens", "vocab", "MB/s a core",
                      fmt::format("MB/s on {}", flags.threads), "tokenizer"));
  for (size_t i = 0; i < tokenizers.size(); ++i) {
    check_interrupt();
    const Measured m = measure(tokenizers[i], file, 1);
    const Measured all = flags.threads > 1 ? measure(tokenizers[i], file, flags.threads) : m;
    LOAM_CHECK(m.counts.tokens > 0, "{}: holds no text", file.string());
    const double ratio = static_cast<double>(m.counts.bytes) / static_cast<double>(m.counts.tokens);
    const Json report(Json::Object{{"tokenizer", words[i]},
                                   {"bytes_per_token", ratio},
                                   {"tokens", m.counts.tokens},
                                   {"bytes", m.counts.bytes},
                                   {"vocab_size", tokenizers[i].vocab_size()},
                                   {"lossless", tokenizers[i].lossless()},
                                   {"bytes_per_second", m.bytes_per_second},
                                   {"threads", flags.threads},
                                   {"bytes_per_second_all_threads", all.bytes_per_second}});
    print(flags.json ? report.dump()
                     : fmt::format("{:>12.3f} {:>12} {:>10} {:>11.1f} {:>11.1f}  {}", ratio, m.counts.tokens,
                                   tokenizers[i].vocab_size(), m.bytes_per_second * 1e-6, all.bytes_per_second * 1e-6,
                                   words[i]));
  }
  return 0;
}

}  // namespace

void add_compare_command(Command& group) {
  auto words = std::make_shared<std::vector<std::string>>();
  Command c = group.add_command("compare", "Compression and speed of tokenizers, side by side",
                                "loam tokenizer compare tok llama3/tokenizer.json book.txt",
                                [words](const CommonFlags& flags) { return compare(*words, flags); });
  c.add_option("T", *words, "TOKENIZERs, and last a file of text (JSONL too is taken as the text that it is)")
      .required();
}

}  // namespace loam
