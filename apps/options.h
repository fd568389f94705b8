// Options that several commands share, and numbers that are checked when they are read.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "loam/base/progress.h"
#include "loam/data/document.h"
#include "loam/kernels/exec_context.h"

namespace loam {

constexpr int64_t kLargestInteger = std::numeric_limits<int64_t>::max();

// A whole number in [low, high]. UsageError that names the flag for anything else, a number beyond 64 bits included.
int64_t parse_integer(const std::string& flag, const std::string& word, int64_t low, int64_t high = kLargestInteger);
// Options that hold such a number; `value` is the default.
Option add_integer(Command& command, const std::string& flag, int64_t& value, const std::string& help, int64_t low,
                   int64_t high = kLargestInteger);
// A number of bytes of at least `low`: 512MB, 1.5GB, 2GiB, 1000.
Option add_bytes(Command& command, const std::string& flag, int64_t& value, const std::string& help, int64_t low);
// A finite number in [low, high]; with `above_low` in (low, high].
Option add_number(Command& command, const std::string& flag, double& value, const std::string& help, double low,
                  double high, bool above_low = false);

// --device; --dtype f32|bf16|f16; --numerics; --text-key and --doc-separator of documents.
void add_device(Command& command, std::string& device);
void add_dtype(Command& command, std::string& dtype, const std::string& help);
void add_numerics(Command& command, Numerics& numerics);
void add_text_key(Command& command, DocumentReaderOptions& reader);
void add_document_separator(Command& command, DocumentReaderOptions& reader);

// --input of commands that need one, and the positional F... that means standard input when it is not there.
void add_input(Command& command, std::vector<std::string>& inputs);
void add_files(Command& command, std::vector<std::string>& inputs, const std::string& help);
// The files that they name. UsageError for an empty name; otherwise as expand_inputs.
std::vector<Path> files_of(const std::vector<std::string>& inputs);
// Sum of the sizes of plain files; 0 (unknown) if there is another input among them.
int64_t total_bytes(const std::vector<Path>& files);

// Progress of a command that writes results to stdout as it works (`beside_output`): none where that is the terminal.
class OutputProgress {
 public:
  OutputProgress(const std::string& label, int64_t total, const std::string& unit, bool beside_output = true);
  void advance(int64_t count);
  void finish();

 private:
  std::optional<Progress> progress_;
};

// Opens an input whose bytes, as they are read, advance `progress`.
std::unique_ptr<TextSource> open_counted(const Path& path, OutputProgress& progress);

// Says how many lines of JSONL were left out, if any.
void warn_of_bad_lines(const DocumentReader& reader);

}  // namespace loam
