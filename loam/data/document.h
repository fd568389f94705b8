// Documents, and reading them from JSONL and plain text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"

namespace loam {

struct Document {
  std::string id;  // "file:line" where the input gives none
  std::string text;
  Json metadata = Json::object();
};

struct DocumentReaderOptions {
  std::string text_key = "text";
  std::string separator;       // plain text: a line equal to it ends a document; empty: one document a file
  double max_bad_share = 0.01; // of the lines seen so far (after the first 100); more bad lines are an Error
};

// Reads documents from inputs (as open_input takes them), in order. Names ending in .jsonl or .json (before .gz/.zst) hold one JSON object a line; others are plain text. Standard input is
// JSONL if its first byte that is not white space is "{". A bad line is counted, reported with file and line, and skipped.
class DocumentReader {
 public:
  DocumentReader(std::vector<Path> inputs, DocumentReaderOptions options);
  ~DocumentReader();
  bool next(Document& document);
  int64_t bad_lines() const;
  int64_t bytes_read() const;   // of decoded input
  int64_t input_bytes() const;  // sum of file sizes, 0 if unknown

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
