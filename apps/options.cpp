#include "apps/options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "loam/base/log.h"
#include "loam/tensor/device.h"

namespace loam {
namespace {

[[noreturn]] void refuse(const std::string& flag, const std::string& word, const std::string& wanted) {
  throw UsageError(flag + " " + (word.empty() ? "''" : word) + ": must be " + wanted);
}

template <class T>
std::string range_text(T low, T high, bool above_low) {
  std::string text = above_low ? fmt::format("above {}", low) : fmt::format("at least {}", low);
  const bool bounded = high != std::numeric_limits<T>::max() && high != std::numeric_limits<T>::infinity();
  return bounded ? fmt::format("{} and at most {}", text, high) : text;
}

// False unless the whole word is one number that T holds.
template <class T>
bool read_number(const std::string& word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() && !word.empty();
}

// The bytes that a unit stands for; 0 if it is none.
double unit_bytes(std::string_view unit) {
  constexpr std::string_view kPrefixes = "KMGT";
  if (unit.empty() || unit == "B") return 1;
  const size_t prefix = kPrefixes.find(static_cast<char>(unit[0] == 'k' ? 'K' : unit[0]));
  const std::string_view rest = unit.substr(1);
  if (prefix == kPrefixes.npos || (rest != "" && rest != "B" && rest != "iB")) return 0;
  return std::pow(rest == "iB" ? 1024.0 : 1000.0, static_cast<double>(prefix) + 1);
}

int64_t parse_byte_count(const std::string& flag, const std::string& word, int64_t low) {
  const size_t end = std::min(word.find_first_not_of("0123456789."), word.size());
  double number = 0;
  const double unit = unit_bytes(std::string_view(word).substr(end));
  const double bytes = read_number(word.substr(0, end), number) ? number * unit : 0;
  if (bytes < static_cast<double>(low) || bytes > 9e18) {
    refuse(flag, word,
           fmt::format("a number of bytes such as 512MB or 4GiB, at least {} and below 9 EB",
                       format_bytes(static_cast<double>(low))));
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

int64_t parse_integer(const std::string& flag, const std::string& word, int64_t low, int64_t high) {
  int64_t value = 0;
  if (!read_number(word, value) || value < low || value > high)
    refuse(flag, word, "a whole number of " + range_text(low, high, false));
  return value;
}

Option add_integer(Command& command, const std::string& flag, int64_t& value, const std::string& help, int64_t low,
                   int64_t high) {
  const auto set = [flag, low, high, &value](const std::string& word) { value = parse_integer(flag, word, low, high); };
  return command.add_option(flag, set, help).show_type("INT").show_default(std::to_string(value));
}

Option add_bytes(Command& command, const std::string& flag, int64_t& value, const std::string& help, int64_t low) {
  const auto set = [flag, low, &value](const std::string& word) { value = parse_byte_count(flag, word, low); };
  std::string shown = format_bytes(static_cast<double>(value));
  std::erase(shown, ' ');
  return command.add_option(flag, set, help).show_type("BYTES").show_default(shown);
}

Option add_number(Command& command, const std::string& flag, double& value, const std::string& help, double low,
                  double high, bool above_low) {
  const auto set = [flag, low, high, above_low, &value](const std::string& word) {
    double number = 0;
    const bool good = read_number(word, number) && std::isfinite(number) && number >= low && number <= high;
    if (!good || (above_low && number == low)) refuse(flag, word, "a number " + range_text(low, high, above_low));
    value = number;
  };
  return command.add_option(flag, set, help).show_type("NUMBER").show_default(fmt::format("{}", value));
}

void add_device(Command& command, std::string& device) {
  const auto set = [&device](const std::string& word) {
    as_usage("--device " + word, [&] { parse_device(word); });
    device = word;
  };
  command.add_option("--device", set, "where to run: cpu, cuda or cuda:N").show_default(device);
}

void add_dtype(Command& command, std::string& dtype, const std::string& help) {
  command.add_option("--dtype", dtype, help).one_of({"f32", "bf16", "f16"}).show_default(dtype);
}

void add_numerics(Command& command, Numerics& numerics) {
  static const std::vector<std::string> kLevels = {"fast", "deterministic", "exact"};  // in the order of the enum
  const auto set = [&numerics](const std::string& word) {
    numerics = static_cast<Numerics>(std::find(kLevels.begin(), kLevels.end(), word) - kLevels.begin());
  };
  command.add_option("--numerics", set, "level of numerics (docs/numerics.md)")
      .one_of(kLevels)
      .show_default(kLevels[static_cast<size_t>(numerics)]);
}

void add_text_key(Command& command, DocumentReaderOptions& reader) {
  command.add_option("--text-key", reader.text_key, "member of JSONL objects that holds the text")
      .show_default(reader.text_key);
}

void add_document_separator(Command& command, DocumentReaderOptions& reader) {
  command.add_option("--doc-separator", reader.separator, "line between documents of plain text");
}

void add_input(Command& command, std::vector<std::string>& inputs) {
  command.add_option("--input", inputs, "text or JSONL files, directories, patterns, or -").required();
}

void add_files(Command& command, std::vector<std::string>& inputs, const std::string& help) {
  command.add_option("F", inputs, help + "; default: standard input");
}

std::vector<Path> files_of(const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    if (input.empty()) throw UsageError("the name of an input is empty");
  }
  return expand_inputs(inputs.empty() ? std::vector<std::string>{"-"} : inputs);
}

int64_t total_bytes(const std::vector<Path>& files) { return DocumentReader(files, {}).input_bytes(); }

OutputProgress::OutputProgress(const std::string& label, int64_t total, const std::string& unit, bool beside_output) {
  if (!beside_output || !::isatty(STDOUT_FILENO)) progress_.emplace(label, total, unit);
}
void OutputProgress::advance(int64_t count) {
  if (progress_) progress_->advance(count);
}
void OutputProgress::finish() {
  if (progress_) progress_->finish();
}

std::unique_ptr<TextSource> open_counted(const Path& path, OutputProgress& progress) {
  return std::make_unique<TextSource>(open_input(path), [&progress](int64_t count) { progress.advance(count); });
}

void warn_of_bad_lines(const DocumentReader& reader) {
  if (reader.bad_lines() > 0) log_warn("{} bad lines were left out", reader.bad_lines());
}

}  // namespace loam
